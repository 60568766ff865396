"""Are the endpoints that episodes need there? Asked before a model is loaded, so that no GPU waits for a dead one.

The simulated user and the judge may be anybody's server. One short completion each is the proof: an address that
accepts connections, or a list of models, is none.
"""

from __future__ import annotations

import asyncio
import os
import time

from stateward.config import EndpointConfig, EpisodeConfig
from stateward.config.simulator import read_address, simulated
from stateward.policy.samplers.chat import ChatSampler
from stateward.policy.samplers.http import Retry

_LATER_SECONDS = 60.0
#: A server that is just being started is given two minutes.
_RETRY = Retry(attempts=8, attempt_seconds=60.0, deadline_seconds=120.0)


def check_endpoints(config: EpisodeConfig, retry: Retry = _RETRY, *, simulator_seconds: float = 0.0) -> list[str]:
    """One line an endpoint that answered; none where users are scripted and nobody judges.

    `simulator_seconds`: that the simulator's server, which another node starts now, may take. It is waited for a little
    longer, so that its own words on why it did not start come first.

    Raises:
        SystemFault("user" or "judge"): it did not answer, or refused; the text has its address and words.
        SystemFault("cluster"): the simulator's server did not start.
        UserError: the endpoint's configuration is not whole.
    """
    parties = {"user": config.user, "judge": config.judge}
    asked = {party: endpoint for party, endpoint in parties.items() if endpoint.kind in ("chat", "simulator")}
    if simulated(config):
        read_address(os.environ, wait_seconds=simulator_seconds + (_LATER_SECONDS if simulator_seconds else 0.0))
    return [asyncio.run(_ask(party, endpoint, retry)) for party, endpoint in asked.items()]


async def _ask(party: str, config: EndpointConfig, retry: Retry) -> str:
    began = time.monotonic()
    async with ChatSampler(config, kind=party, retry=retry) as model:
        # A model that thinks first needs room for an answer; an empty one is an answer too.
        await model.chat([{"role": "user", "content": "Say ok."}], max_tokens=16, seed=0)
    return f"{party}: {model.name} at {model.base_url} answered in {time.monotonic() - began:.1f} s"
