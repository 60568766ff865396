"""The parties of an episode beside the policy, and what may play them."""

from __future__ import annotations

from stateward.config.schema import EpisodeConfig
from stateward.errors import UserError, nearest

#: Party → valid values of its `kind`.
PARTY_KINDS = {"user": ("chat", "none", "scripted", "simulator"), "judge": ("chat", "none", "simulator")}


def require_known_parties(config: EpisodeConfig) -> None:
    """Raises UserError if a party's `kind` is none: otherwise it comes out when a policy has been loaded already."""
    for party, kinds in PARTY_KINDS.items():
        kind = getattr(config, party).kind
        if kind not in kinds:
            raise UserError(
                f"episode.{party}.kind={kind!r} is not known here",
                f"the {party} is played by one of {len(kinds)} kinds",
                nearest(kind, kinds),
            )
