"""How long is each task's first prompt? Measured in its own world, with its own tools, before anything is sampled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from stateward.episode.environment import Environment
from stateward.episode.policy import TokenPolicy
from stateward.errors import SystemFault, UserError
from stateward.outcome import Trial
from stateward.policy import OpenedPolicy
from stateward.policy.turn import Sample
from stateward.tasks.task import Task

Result = TypeVar("Result")


class _MeasuringSampler:
    """Notes the length of the prompt that it is given and ends the episode."""

    def __init__(self) -> None:
        self.prompt_tokens = 0

    async def sample(self, prompt_ids: list[int], *, max_tokens: int, seed: int) -> Sample:
        self.prompt_tokens = len(prompt_ids)
        raise SystemFault("sampler", "measured")


async def prove_task(environment: Environment, task: Task) -> None:
    """Open the task's world and load its check, as every trial will.

    A world that does not open by a fault of ours is left to the trials, which run again.

    Raises:
        UserError: the task contradicts its tool servers, or its check does not load.
    """
    with contextlib.suppress(SystemFault):
        await (await environment.sandbox.open(task)).aclose()
    await environment.grader.load(task.check)


async def prove_tasks(environment: Environment, tasks: Sequence[Task], *, concurrency: int) -> None:
    """`prove_task` of each, so many at a time. Raises UserError for the first that is wrong."""
    slots = asyncio.Semaphore(concurrency)

    async def one(task: Task) -> None:
        async with slots:
            await prove_task(environment, task)

    await _each(one, tasks)


async def _each(one: Callable[[Task], Coroutine[Any, Any, Result]], tasks: Sequence[Task]) -> list[Result]:
    """What `one` gives for each task. Its first error ends the others before it is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(task)) for task in tasks]
    except* (UserError, SystemFault) as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in running]


async def measure_prompts(
    environment: Environment, opened: OpenedPolicy, tasks: Sequence[Task], *, concurrency: int
) -> dict[str, int | SystemFault]:
    """Tokens of each task's first prompt by uid, or the fault that came before it could be sampled from.

    Raises:
        UserError: as `prove_task` does.
    """
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
            try:
                await prove_task(environment, task)
            except SystemFault as fault:
                return fault
            record = await environment.runner(policy).run(task, Trial(uid=task.uid, index=0, policy="", settings=""), 0)
        return sampler.prompt_tokens or SystemFault(record.fault_kind or "bug", record.fault_cause)

    found = await _each(one, tasks)
    return {task.uid: length for task, length in zip(tasks, found, strict=True)}
