"""The suite's episode loop as an agent loop of Verl's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from stateward.training.rollout import EpisodeOrder, EpisodeService

_services: dict[str, asyncio.Future[EpisodeService]] = {}


async def episode_service(settings: str) -> EpisodeService:
    """The service of this process, opened by the first episode that asks."""
    if settings not in _services:
        _services[settings] = asyncio.ensure_future(EpisodeService.open(Path(settings)))
    return await asyncio.shield(_services[settings])


async def close_services() -> None:
    while _services:
        _, opening = _services.popitem()
        await (await opening).close()


def finished_attempts() -> int:
    """How many attempts at episodes this process has finished, void ones included."""
    return sum(opening.result().attempts for opening in _services.values() if opening.done())


async def settle_services() -> None:
    """Wait for the ends of worlds, which no episode waits for."""
    for opening in list(_services.values()):
        await (await opening).environment.sandbox.settled()


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]
    """One episode. Verl makes an instance for each, with `settings` from the registration file.

    Verl's own initialiser is not called: it renders probe conversations with the chat template to set up Verl's
    tokenisation of messages, which is not used here (the suite's renderer is).
    """

    def __init__(self, *, settings: str, server_manager: Any, **_: Any) -> None:
        self.settings, self.server_manager = settings, server_manager

    async def service(self) -> EpisodeService:
        return await episode_service(self.settings)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Raises `VoidEpisode`; the worker reports it and the group is replaced."""
        service = await self.service()
        order = EpisodeOrder(uid=kwargs["task"], step=int(kwargs["global_steps"]), index=int(kwargs["index"]))
        episode = await service.run(order, self.server_manager)
        seconds = episode.report.seconds
        return AgentLoopOutput(
            prompt_ids=episode.prompt_ids,
            response_ids=episode.response_ids,
            response_mask=episode.response_mask,
            response_logprobs=episode.response_logprobs,
            reward_score=episode.reward,
            num_turns=episode.report.turns,
            metrics=AgentLoopMetrics(
                generate_sequences=seconds.get("sample", 0.0),
                tool_calls=seconds.get("tools", 0.0),
                compute_score=seconds.get("grade", 0.0),
            ),
            extra_fields={
                "min_global_steps": episode.versions[0],
                "max_global_steps": episode.versions[1],
                "reward_extra_info": {},
                "report": episode.report,
            },
        )
