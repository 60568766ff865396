"""A shard's episodes and its journal."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import stateward.campaign.sampled as sampled
import stateward.campaign.sampling as sampling
import stateward.episode as episode
from stateward.campaign.owed import missing_trials
from stateward.campaign.status import open_shards
from stateward.cluster import interrupts
from stateward.config import load_config
from stateward.errors import SystemFault
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.practice import dataset_path
from stateward.store import journal as journal_module
from stateward.tasks.task import Task

ROOT = Path(__file__).parents[2]
EPISODES = 8


@pytest.fixture
def plan(tmp_path: Path) -> sampling.SamplingPlan:
    uids = yaml.safe_load((dataset_path() / "orders_train.yaml").read_text())
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(uids[: EPISODES // 2]))
    overrides = [f"run_dir={tmp_path / 'run'}", f"tasks.train={tmp_path / 'train.yaml'}", "probe.trials=2"]
    return sampling.plan_probe(load_config(ROOT / "configs" / "practice.yaml", [*overrides, "probe.stop=fixed"]))


@pytest.mark.slow
def test_episodes_that_end_together_share_a_flush_and_wait_for_it(
    plan: sampling.SamplingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first episode's flush lasts until the others, which begin to end with it, have all ended."""
    flushes, counted_as_run = 0, 0
    flushing, all_ended = threading.Event(), threading.Event()

    class Runner:
        begun = ended = 0

        def __init__(self, policy: Any) -> None:
            self.policy = policy

        async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int) -> EpisodeRecord:
            Runner.begun += 1
            if Runner.begun > 1:
                await asyncio.to_thread(flushing.wait, 10)
            Runner.ended += 1
            if Runner.ended == EPISODES:
                all_ended.set()
            return EpisodeRecord(trial=trial, outcome=Outcome.PASS, reward=1.0, seed=seed, attempt=attempt)

    @asynccontextmanager
    async def environment(config: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(runner=Runner)

    @asynccontextmanager
    async def opened(self: sampled.Checkpoint, log: Path) -> AsyncIterator[Any]:
        yield SimpleNamespace(fingerprint=self.identity)

    def fsync(fd: int) -> None:
        nonlocal flushes
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".jsonl"):
            flushes += 1
            flushing.set()
            assert all_ended.wait(10), "an episode waited for the flush of another one"
            assert counted_as_run < flushes, "an episode counts once it is on disk"
        os.fdatasync(fd)

    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def skip(self, number: int) -> None: ...

        def episode(self, record: EpisodeRecord) -> None:
            nonlocal counted_as_run
            counted_as_run += 1

    monkeypatch.setattr(sampled.Checkpoint, "open", opened)
    monkeypatch.setattr(episode, "open_environment", environment)
    monkeypatch.setattr(sampling, "check_prompts", lambda *_, **__: 0)
    monkeypatch.setattr("stateward.campaign.progress.EpisodeBar", Bar)
    monkeypatch.setattr(journal_module.os, "fsync", fsync)
    ((shard, _),) = sampling.write_shards(plan, 1)
    tally = sampling.run_shard(str(shard))
    assert (tally["ran"], counted_as_run) == (EPISODES, EPISODES)
    assert flushes == 2, "the first one's row, then those of all who came meanwhile"
    assert missing_trials(plan)[1] == []


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], None]:
    """Episodes of which a function gives the fault, in the place of worlds and engine."""

    def install(fault: Callable[[], str]) -> None:
        class Runner:
            def __init__(self, policy: Any) -> None:
                self.policy = policy

            async def run(self, task: Task, trial: Trial, seed: int, *, attempt: int) -> EpisodeRecord:
                kind = fault()
                outcome, reward = (Outcome.VOID, float("nan")) if kind else (Outcome.PASS, 1.0)
                return EpisodeRecord(
                    trial=trial, outcome=outcome, reward=reward, seed=seed, attempt=attempt, fault_kind=kind
                )

        @asynccontextmanager
        async def environment(config: Any) -> AsyncIterator[Any]:
            yield SimpleNamespace(runner=Runner)

        @asynccontextmanager
        async def opened(self: sampled.Checkpoint, log: Path) -> AsyncIterator[Any]:
            yield SimpleNamespace(fingerprint=self.identity)

        monkeypatch.setattr(sampled.Checkpoint, "open", opened)
        monkeypatch.setattr(episode, "open_environment", environment)
        monkeypatch.setattr(sampling, "check_prompts", lambda *_, **__: 0)

    return install


def test_a_stage_that_only_makes_voids_stops_with_the_cause(
    plan: sampling.SamplingPlan, scripted: Callable[[Callable[[], str]], None]
) -> None:
    scripted(lambda: "user")
    ((shard, _),) = sampling.write_shards(plan, 1)
    with pytest.raises(SystemFault, match=r"of \d+ episodes are void, more than probe.max_void_share=0.5") as caught:
        sampling.run_shard(str(shard))
    assert caught.value.kind == "user"
    assert open_shards(plan.stage.path) == [0]  # left unsealed: another call goes on


def test_an_order_to_stop_that_a_world_hears_first_makes_no_void(
    plan: sampling.SamplingPlan, scripted: Callable[[Callable[[], str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm ends the world of every episode, and then this process hears the order."""
    monkeypatch.setattr(interrupts, "_told", False)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    interrupts.listen()

    def fault() -> str:
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
        return "sandbox"

    scripted(fault)
    ((shard, _),) = sampling.write_shards(plan, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            sampling.run_shard(str(shard))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert list(sampling.stored(plan.stage)) == []
    assert open_shards(plan.stage.path) == [0]
