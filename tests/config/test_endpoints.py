"""An endpoint that is each node's own address is refused before a job over several nodes is submitted."""

from __future__ import annotations

import pytest

from stateward.config import EndpointConfig, EpisodeConfig
from stateward.config.endpoints import require_addresses
from stateward.errors import UserError


def endpoint(url: str, kind: str = "chat") -> EndpointConfig:
    return EndpointConfig(kind=kind, base_url=url, model="m")


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/v1", "http://127.0.0.2:1/v1", "http://[::1]:8080/v1", "https://0.0.0.0/v1"]
)
@pytest.mark.parametrize("party", ["user", "judge"])
def test_a_nodes_own_address_is_refused(url: str, party: str) -> None:
    with pytest.raises(UserError, match=f"episode.{party}.base_url=.*own address") as caught:
        require_addresses(EpisodeConfig(**{party: endpoint(url)}))
    assert "run on all GPU nodes" in caught.value.why
    assert f"episode.{party}.kind=simulator" in caught.value.do


@pytest.mark.parametrize("url", ["http://10.0.0.7:8080/v1", "http://user-model:8080/v1", "https://api.example.com/v1"])
def test_other_hosts_are_asked_by_the_job_itself(url: str) -> None:
    require_addresses(EpisodeConfig(user=endpoint(url), judge=endpoint("", kind="simulator")))
