"""Whether the endpoints of a configuration can be reached from every node of a cluster, as far as their names tell."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from stateward.config.schema import EpisodeConfig
from stateward.errors import UserError


def require_addresses(config: EpisodeConfig) -> None:
    """Raises UserError if an endpoint's host is the node's own: episodes run on other nodes than what serves beside the
    driver, and each node would ask itself."""
    for party in ("user", "judge"):
        endpoint = getattr(config, party)
        if endpoint.kind == "chat" and _own(urlsplit(endpoint.base_url).hostname or ""):
            raise UserError(
                f"episode.{party}.base_url={endpoint.base_url!r} is each node's own address",
                "episodes run on all GPU nodes, and a server runs on one node",
                f"name the host that every node reaches, or set episode.{party}.kind=simulator",
            )


def _own(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
