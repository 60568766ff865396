"""Many trials: stop rules, resumption, retries of voids, and the seeds that a trial's identity gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from stateward.episode.trials import run_trials
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.tasks.task import Check, Task


def make_task(name: str) -> Task:
    return Task(uid=f"t.py:{name}", domain="d", system="", query="", check=Check(file="", function="", source=""))


@dataclass
class Runner:
    """In place of `EpisodeRunner`, which has tests of its own: outcomes by (uid, index, attempt), calls recorded."""

    outcome: dict[tuple[str, int, int], Outcome] = field(default_factory=dict)
    calls: list[tuple[str, int, int]] = field(default_factory=list)
    seeds: set[int] = field(default_factory=set)

    @property
    def policy(self) -> Runner:
        return self

    fingerprint = "p"

    async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int) -> EpisodeRecord:
        self.calls.append((task.uid, trial.index, attempt))
        self.seeds.add(seed)
        outcome = self.outcome.get((task.uid, trial.index, attempt), Outcome.PASS)
        kind = "sampler" if outcome is Outcome.VOID else ""
        return EpisodeRecord(trial=trial, outcome=outcome, reward=1.0, attempt=attempt, fault_kind=kind)


async def run(runner: Runner, tasks: list[Task], **changes: object) -> tuple[object, list[EpisodeRecord]]:
    written: list[EpisodeRecord] = []

    async def write(record: EpisodeRecord) -> None:
        written.append(record)

    arguments: dict[str, object] = {
        "trials": 4,
        "settings": "s",
        "base_seed": 1,
        "earlier": {},
        "write": write,
        "concurrency": 3,
        "max_attempts": 2,
    }
    tally = await run_trials(runner, tasks, **{**arguments, **changes})  # type: ignore[arg-type]
    return tally, written


async def test_every_trial_runs_once_with_its_own_seed() -> None:
    runner = Runner()
    tasks = [make_task(n) for n in "abc"]
    tally, written = await run(runner, tasks)
    assert Counter(runner.calls) == {(t.uid, i, 1): 1 for t in tasks for i in range(4)}
    assert len({r.trial.key for r in written}) == 12
    assert len(runner.seeds) == 12
    assert (tally.passes, tally.fails, tally.void, tally.ran) == (12, 0, 0, 12)


async def test_a_stop_rule_sees_the_trials_in_order_and_saves_the_rest() -> None:
    seen: list[tuple[int, int]] = []

    def rule(passes: int, valid: int) -> bool:
        seen.append((passes, valid))
        return passes == 2

    tally, written = await run(Runner(), [make_task("a")], stop=rule)
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert (len(written), tally.saved, tally.stopped_tasks) == (2, 2, 1)


async def test_a_void_is_run_again_and_counts_for_nothing() -> None:
    task = make_task("a")
    runner = Runner({(task.uid, 1, 1): Outcome.VOID, (task.uid, 2, 1): Outcome.VOID, (task.uid, 2, 2): Outcome.VOID})
    valid: list[int] = []
    tally, written = await run(runner, [task], stop=lambda passes, m: valid.append(m) or False)
    assert [(r.trial.index, r.attempt, r.outcome.value) for r in written] == [
        *((0, 1, "pass"), (1, 1, "void"), (1, 2, "pass"), (2, 1, "void"), (2, 2, "void"), (3, 1, "pass"))
    ]
    assert valid == [0, 1, 2, 2]  # the standing void is not a valid trial
    assert (tally.void, tally.retried, tally.voids) == (1, 2, {"sampler": 1})


@pytest.mark.parametrize("cut", range(5))
async def test_a_resumed_run_ends_as_an_uninterrupted_one(cut: int) -> None:
    task = make_task("a")
    outcomes = {(task.uid, i, 1): o for i, o in enumerate([Outcome.FAIL, Outcome.PASS, Outcome.VOID, Outcome.PASS])}

    def rule(passes: int, valid: int) -> bool:
        return passes == 2

    whole_tally, whole = await run(Runner(outcomes), [task], stop=rule)
    earlier = {r.trial.key: (r.outcome, r.attempt) for r in whole[:cut]}
    runner = Runner(outcomes)
    tally, rest = await run(runner, [task], stop=rule, earlier=earlier)
    assert [r.to_json() for r in whole[:cut] + rest] == [r.to_json() for r in whole]
    assert tally.passes == whole_tally.passes
    assert tally.kept + len({r.trial.key for r in rest}) == 3


async def test_a_bug_in_the_store_is_not_swallowed() -> None:
    async def full(record: EpisodeRecord) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ExceptionGroup) as caught:
        await run(Runner(), [make_task("a")], write=full)
    assert caught.group_contains(OSError, match="No space left")
