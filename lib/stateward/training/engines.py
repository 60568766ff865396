"""The rollout engines as one client: turns of an episode go to the engine that holds its prefix.

Verl's client asks a balancer actor before every turn. That actor is one more process that imports all of Verl, and one
more message a turn. Here every worker balances its own episodes over all engines, which spreads them evenly as well.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any


class EngineClient:
    """Handles of the engines (verl 0.9.1, ``vLLMHttpServer``), and which of them serves which episode.

    Picklable; every worker process has its own counts.
    """

    def __init__(self, servers: dict[str, Any]) -> None:
        if not servers:
            raise ValueError("there is no rollout engine")
        self.servers = dict(servers)
        self._busy = dict.fromkeys(servers, 0)
        self._home: dict[str, str] = {}

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """Verl's ``TokenOutput`` for one turn of the episode `request_id`. If this is cancelled, so is the turn."""
        name = self._home.setdefault(request_id, self._least_busy())
        self._busy[name] += 1
        try:
            asked = self.servers[name].generate.remote(
                request_id=uuid.uuid4().hex, prompt_ids=prompt_ids, sampling_params=sampling_params
            )
            try:
                return await asked
            except asyncio.CancelledError:
                import ray  # not needed to plan a run

                # Ray keeps that to itself, and the engine would write the turn to its end for nobody.
                ray.cancel(asked)
                raise
        finally:
            self._busy[name] -= 1

    def forget(self, request_id: str) -> None:
        """The episode is over."""
        self._home.pop(request_id, None)

    def _least_busy(self) -> str:
        homes = dict.fromkeys(self.servers, 0)
        for name in self._home.values():
            homes[name] += 1
        fewest = min(homes.values())
        # Many workers start at the same moment; each picks among the equally free engines by chance.
        return random.choice([name for name, number in homes.items() if number == fewest])
