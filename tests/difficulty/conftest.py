"""Made-up tasks and probe results, written through the real store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.config import Config
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.store import Journal, Stage
from stateward.store.shard import write_shard
from stateward.tasks.task import Check, ServerSpec, Task

OUTCOMES = {"p": Outcome.PASS, "f": Outcome.FAIL, "v": Outcome.VOID}


def make_task(
    uid: str, *, query: str = "", domain: str = "", world: Any = None, check: str = "", user: str = ""
) -> Task:
    """A task whose query, world and check are its own unless given."""
    file, name = uid.split(":")
    words = " ".join(f"{uid}-{i}" for i in range(12))
    return Task(
        uid=uid,
        domain=domain or file.removesuffix(".py"),
        system="Follow the policy.",
        query=query or f"please handle {words}",
        user_context=user,
        world={"desk": {"order": uid} if world is None else world},
        servers=(ServerSpec(name="desk"),),
        check=Check(file=file, function=name, source=check or f"def {name}(t):\n    assert t.effects == {uid!r}\n"),
    )


def write_stage(
    run_dir: Path,
    outcomes: Mapping[str, str],
    *,
    trials: int = 8,
    stop_rule: str = "kept",
    policy: str = "base",
    settings: str = "s1",
    shards: int = 1,
    sealed: bool = True,
    first_index: int = 0,
    probe: dict[str, Any] | None = None,
    bands: dict[str, Any] | None = None,
    order: Callable[[Iterable[str]], Iterable[str]] = sorted,
) -> Path:
    """A probe stage: for each uid a text of p, f and v, one letter a trial. Returns the stage's directory."""
    stage = Stage(run_dir, "probe")
    inputs = {"policy": policy, "settings": settings, "trials": trials, "stop_rule": stop_rule}
    stage.begin({"probe": probe or {}}, {**inputs, **({"bands": bands} if bands else {})})
    uids = list(order(outcomes))
    for shard in range(shards):
        rows = [
            record(uid, index, OUTCOMES[letter], policy, settings).to_json()
            for uid in uids[shard::shards]
            for index, letter in enumerate(outcomes[uid], first_index)
        ]
        if sealed:
            write_shard(stage.shards / f"{shard:04d}-00.h5", iter(rows))
        else:
            with Journal(stage.shards / f"{shard:04d}-00.jsonl") as journal:
                for row in rows:
                    journal.append(row)
    return stage.path


def record(uid: str, index: int, outcome: Outcome, policy: str = "base", settings: str = "s1") -> EpisodeRecord:
    return EpisodeRecord(
        trial=Trial(uid=uid, index=index, policy=policy, settings=settings),
        outcome=outcome,
        reward={"pass": 1.0, "fail": 0.0, "void": float("nan")}[outcome.value],
        domain=uid.split(".")[0],
        fault_kind="sampler" if outcome is Outcome.VOID else "",
        seconds={"total": 2.0},
    )


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Config:
    out = Config(name="test", run_dir=str(tmp_path / "run"))
    out.probe.trials = 8
    return out


@pytest.fixture
def made() -> SimpleNamespace:
    """The makers above; test modules cannot import one another."""
    return SimpleNamespace(task=make_task, stage=write_stage, record=record, jsonl=write_jsonl)


@pytest.fixture
def plots() -> None:
    """A test that asks for this has its pools plotted; the others do without, which saves a third of a second each."""


@pytest.fixture(autouse=True)
def _without_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("stateward.difficulty.curate.can_plot", lambda: False)
        monkeypatch.setattr("stateward.difficulty.drift.can_plot", lambda: False)
