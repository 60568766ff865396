"""How long is each task's first prompt? Measured in its own world, with its own tools, before anything is sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stateward.episode.environment import Environment
from stateward.episode.policy import TokenPolicy
from stateward.errors import SystemFault
from stateward.outcome import Trial
from stateward.policy import OpenedPolicy
from stateward.policy.turn import Sample
from stateward.tasks.task import Task


class _MeasuringSampler:
    """Notes the length of the prompt that it is given and ends the episode."""

    def __init__(self) -> None:
        self.prompt_tokens = 0

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        self.prompt_tokens = len(prompt_ids)
        raise SystemFault("sampler", "measured")


async def measure_prompts(
    environment: Environment, opened: OpenedPolicy, tasks: Sequence[Task], *, concurrency: int
) -> dict[str, int | SystemFault]:
    """Tokens of each task's first prompt by uid, or the fault that came before it could be sampled from."""
    slots = asyncio.Semaphore(concurrency)

    async def one(task: Task) -> int | SystemFault:
        sampler = _MeasuringSampler()
        policy = TokenPolicy(
            renderer=opened.renderer,
            interpreter=opened.interpreter,
            sampler=sampler,
            fingerprint="",
            max_model_len=1 << 31,  # measured, not judged by room
            max_tokens_per_turn=1,
        )
        async with slots:
            record = await environment.runner(policy).run(task, Trial(uid=task.uid, index=0, policy="", settings=""), 0)
        return sampler.prompt_tokens or SystemFault(record.fault_kind or "bug", record.fault_cause)

    found = await asyncio.gather(*(one(task) for task in tasks))
    return {task.uid: length for task, length in zip(tasks, found, strict=True)}
