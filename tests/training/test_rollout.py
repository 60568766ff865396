"""Episodes inside a worker: what Verl gets of one, and what becomes of voids."""

from __future__ import annotations

import math
import pickle
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.config import Config, load_config
from stateward.outcome import EpisodeRecord, Outcome
from stateward.store import GroupCommit, Journal, read_journal
from stateward.tasks.task import Check, Task
from stateward.training import rollout
from stateward.training.rollout import EpisodeOrder, EpisodeService, VoidEpisode

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"
TASK = Task(uid="f.py:t", domain="d", system="s", query="q", check=Check(file="f.py", function="t", source=""))
TOKENS = {
    "ids": [1, 2, 3, 4, 5, 6, 7, 8],
    "mask": [0, 0, 1, 1, 0, 1, 0, 0],
    "logprobs": [0.0, 0.0, -0.1, -0.2, 0.0, -0.3, 0.0, 0.0],
    "prompt_length": [2],
}


class Runner:
    """Gives outcomes in turn and notes the trials."""

    def __init__(self, outcomes: list[Outcome], tokens: dict[str, list[Any]], fault: str = "init") -> None:
        self.outcomes, self.tokens, self.fault = outcomes, tokens, fault
        self.seen: list[tuple[str, int, int]] = []

    async def run(self, task: Task, trial: Any, seed: int, *, attempt: int) -> EpisodeRecord:
        self.seen.append((trial.key, seed, attempt))
        outcome = self.outcomes.pop(0)
        void = outcome is Outcome.VOID
        return EpisodeRecord(
            trial=trial,
            outcome=outcome,
            reward=math.nan if void else float(outcome is Outcome.PASS),
            fault_kind=self.fault if void else "",
            fault_cause="it broke" if void else "",
            finish="fault" if void else "done",
            turns=2,
            tokens={} if void else self.tokens,
            seed=seed,
            attempt=attempt,
        )


def service(tmp_path: Path, runner: Runner, config: Config | None = None) -> EpisodeService:
    return EpisodeService(
        config=config or load_config(PRACTICE),
        tasks={TASK.uid: TASK},
        environment=SimpleNamespace(runner=lambda policy, keep_tokens: runner),  # type: ignore[arg-type]
        renderer=None,  # type: ignore[arg-type]
        interpreter=None,  # type: ignore[arg-type]
        stop_ids=frozenset(),
        policy_id="base",
        settings_id="settings",
        journal=GroupCommit(Journal(tmp_path / "j.jsonl")),
        stack=AsyncExitStack(),
    )


class Engines:
    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.generate = None

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)


@pytest.fixture(name="pauses", autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(rollout.asyncio, "sleep", sleep)
    return pauses


ORDER = EpisodeOrder(uid=TASK.uid, step=7, index=3)


async def test_what_verl_gets_of_an_episode(tmp_path: Path) -> None:
    runner, engines = Runner([Outcome.PASS], TOKENS), Engines()
    under_test = service(tmp_path, runner)
    episode = await under_test.run(ORDER, engines)  # type: ignore[arg-type]
    assert episode.prompt_ids == [1, 2]
    # Tokens 7 and 8 came after the last sampled one: nobody read them.
    assert episode.response_ids == [3, 4, 5, 6]
    assert episode.response_mask == [1, 1, 0, 1]
    assert episode.response_logprobs == [-0.1, -0.2, 0.0, -0.3]
    assert episode.reward == 1.0
    assert (episode.report.prompt_tokens, episode.report.response_tokens, episode.report.sampled_tokens) == (2, 6, 3)
    assert runner.seen[0][0] == "f.py:t#3@base+7/settings"
    assert engines.forgotten == ["f.py:t#3@base+7/settings#1"]
    assert [row["outcome"] for row in read_journal(tmp_path / "j.jsonl")] == ["pass"]


async def test_a_void_is_run_again_with_the_same_seed_and_growing_pauses(tmp_path: Path, pauses: list[float]) -> None:
    runner = Runner([Outcome.VOID, Outcome.VOID, Outcome.FAIL], TOKENS)
    under_test = service(tmp_path, runner)
    episode = await under_test.run(ORDER, Engines())  # type: ignore[arg-type]
    assert episode.reward == 0.0
    assert episode.report.voids == ("init", "init")
    assert [attempt for _, _, attempt in runner.seen] == [1, 2, 3]
    assert len({seed for _, seed, _ in runner.seen}) == 1
    assert under_test.attempts == 3
    assert pauses == sorted(pauses)
    assert len(set(pauses)) == 2
    assert [row["attempt"] for row in read_journal(tmp_path / "j.jsonl")] == [1, 2, 3]


async def test_what_stays_void_is_a_typed_fault_that_crosses_processes(tmp_path: Path) -> None:
    runner = Runner([Outcome.VOID] * 3, TOKENS)
    with pytest.raises(VoidEpisode) as caught:
        await service(tmp_path, runner).run(ORDER, Engines())  # type: ignore[arg-type]
    fault = pickle.loads(pickle.dumps(caught.value))
    assert (fault.kind, fault.cause) == ("init", "it broke")
    assert fault.report.outcome is Outcome.VOID
    assert fault.report.voids == ("init",) * 3
    assert math.isnan(fault.report.reward)


async def test_one_that_passed_its_limit_is_not_run_again_for_as_long(tmp_path: Path, pauses: list[float]) -> None:
    runner = Runner([Outcome.VOID, Outcome.FAIL], TOKENS, fault="deadline")
    under_test = service(tmp_path, runner)
    with pytest.raises(VoidEpisode) as caught:
        await under_test.run(ORDER, Engines())  # type: ignore[arg-type]
    assert (caught.value.kind, caught.value.report.voids) == ("deadline", ("deadline",))
    assert (len(runner.seen), pauses, under_test.attempts) == (1, [], 1)


async def test_an_episode_without_a_sampled_token_is_void(tmp_path: Path) -> None:
    empty = {**TOKENS, "mask": [0] * 8}
    with pytest.raises(VoidEpisode) as caught:
        await service(tmp_path, Runner([Outcome.FAIL] * 3, empty)).run(ORDER, Engines())  # type: ignore[arg-type]
    assert caught.value.kind == "render"
    assert {row["outcome"] for row in read_journal(tmp_path / "j.jsonl")} == {"void"}


async def test_seeds_differ_by_step_task_and_index_and_not_by_run(tmp_path: Path) -> None:
    async def seed_of(step: int, index: int, run_seed: int = 42) -> int:
        runner = Runner([Outcome.PASS], TOKENS)
        config = load_config(PRACTICE, [f"train.seed={run_seed}"])
        under_test = service(tmp_path, runner, config)
        await under_test.run(EpisodeOrder(uid=TASK.uid, step=step, index=index), Engines())  # type: ignore[arg-type]
        under_test.journal.journal.close()
        return runner.seen[0][1]

    seeds = [await seed_of(1, 0), await seed_of(2, 0), await seed_of(1, 1), await seed_of(1, 0, run_seed=43)]
    assert len(set(seeds)) == 4
    assert await seed_of(1, 0) == seeds[0]
    assert all(0 <= seed < 2**31 for seed in seeds)
