"""Run the trials of some tasks with bounded concurrency, into one journal. Probing and evaluation share it.

With a stop rule, a task's trials run one after the other in the order of their index, so that the rule sees every
earlier outcome and a resumed run decides as an uninterrupted one; different tasks run side by side. Without one, all
trials are independent and run as slots come free. Either way neighbours in the list run together: they share a snapshot
and a prefix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stateward.episode.loop import EpisodeRunner
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.tasks.task import Task

#: passes, valid trials → True once no further trial of the task is needed.
StopRule = Callable[[int, int], bool]


@dataclass(kw_only=True)
class Tally:
    """Counts of one run: `ran` episodes now, `kept` valid trials from before, outcomes over both, `voids` left."""

    ran: int = 0
    kept: int = 0
    passes: int = 0
    fails: int = 0
    retried: int = 0
    stopped_tasks: int = 0
    saved: int = 0
    voids: dict[str, int] = field(default_factory=dict)

    @property
    def void(self) -> int:
        return sum(self.voids.values())


async def store_record(record: EpisodeRecord, write: Callable[[EpisodeRecord], Awaitable[None]]) -> EpisodeRecord:
    """Store `record`, or a void in its place if it holds what JSON cannot (`EpisodeRecord.lost`); returns that one.

    What comes from servers, checks and endpoints is read strictly where it comes in. This is the net below: one value
    that slips through must not end a shard, and again each time the shard is continued.
    """
    try:
        await write(record)
    except (ValueError, TypeError, RecursionError) as error:
        record = record.lost(error)
        await write(record)
    return record


async def run_trials(
    runner: EpisodeRunner,
    tasks: Sequence[Task],
    *,
    trials: int,
    settings: str,
    base_seed: int,
    earlier: Mapping[str, tuple[Outcome, int]],
    write: Callable[[EpisodeRecord], Awaitable[None]],
    concurrency: int,
    max_attempts: int,
    stop: StopRule | None = None,
    on_episode: Callable[[EpisodeRecord], None] = lambda record: None,
    on_skip: Callable[[int], None] = lambda number: None,
) -> Tally:
    """Run what is missing of `trials` trials of each task.

    Args:
        settings: settings fingerprint of the trials.
        earlier: trial key → (outcome, attempt) of records from before; valid ones are not run again.
        write: stores a record durably. Its trial counts as run once this has returned: only then does the slot take
            another, and the stop rule see the outcome.
        max_attempts: runs of one trial, earlier ones included, before a void is left standing. A trial that was left
            void by an earlier call gets one attempt more each call.
        on_skip: told the number of trials that will not run, for the progress bar.
    """
    tally = Tally()

    async def one_trial(task: Task, index: int) -> Outcome:
        trial = Trial(uid=task.uid, index=index, policy=runner.policy.fingerprint, settings=settings)
        outcome, attempt = earlier.get(trial.key, (Outcome.VOID, 0))
        if attempt and outcome is not Outcome.VOID:
            tally.kept += 1
            on_skip(1)
            return outcome
        last = max(max_attempts, attempt + 1)
        while True:
            attempt += 1
            record = await runner.run(task, trial, trial.seed(base_seed), attempt=attempt)
            record = await store_record(record, write)
            tally.ran += 1
            if record.outcome is not Outcome.VOID or attempt >= last:
                break
            tally.retried += 1
        on_episode(record)
        if record.outcome is Outcome.VOID:
            tally.voids[record.fault_kind] = tally.voids.get(record.fault_kind, 0) + 1
        return record.outcome

    def count(outcome: Outcome) -> None:
        tally.passes += outcome is Outcome.PASS
        tally.fails += outcome is Outcome.FAIL

    async def until_decided(task: Task, rule: StopRule) -> None:
        passes = valid = 0
        for index in range(trials):
            if rule(passes, valid):
                tally.stopped_tasks += 1
                tally.saved += trials - index
                on_skip(trials - index)
                return
            outcome = await one_trial(task, index)
            passes += outcome is Outcome.PASS
            valid += outcome is not Outcome.VOID
            count(outcome)

    async def single(task: Task, index: int) -> None:
        count(await one_trial(task, index))

    def units() -> Iterator[Coroutine[None, None, None]]:
        for task in tasks:
            if stop is not None:
                yield until_decided(task, stop)
            else:
                yield from (single(task, index) for index in range(trials))

    queue = units()

    async def slot() -> None:
        for unit in queue:  # one iterator for all slots: each takes the next unit when it is free
            await unit

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(slot())
    return tally
