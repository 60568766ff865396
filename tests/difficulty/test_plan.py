"""The plan of a probe: expected trials against simulation, the array's shape, measured episodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stateward.config import Config
from stateward.difficulty import stop_rule
from stateward.difficulty.plan import EpisodeCost, plan_probe
from stateward.errors import UserError
from stateward.outcome import Outcome
from stateward.store import Journal


def test_figures(config: Config) -> None:
    config.serve.tensor_parallel = 8
    config.episode.concurrency = 16
    plan = plan_probe(config, 1000, EpisodeCost(seconds=60.0, attempts=1.1), array_tasks=4, startup_seconds=600)
    assert plan.trials == pytest.approx(1000 * 8 * 0.6075, rel=1e-3)
    assert plan.episodes == pytest.approx(plan.trials * 1.1)
    assert plan.tasks_each == 250
    seconds = 600 + plan.trials / 4 * 1.1 / 16 * 60
    assert plan.hours_each == pytest.approx(seconds / 3600)
    assert plan.gpu_hours == pytest.approx(4 * 8 * seconds / 3600)
    assert plan.saved_hours == pytest.approx(4 * 8 * (8000 - plan.trials) / 4 * 1.1 / 16 * 60 / 3600)
    text = "\n".join(plan.lines())
    for part in ("4,860 of 8,000 (61%)", "assumed", "4 tasks × 8 GPUs", "up to 250", f"{plan.gpu_hours:,.1f}"):
        assert part in text


def test_expected_trials_are_those_of_a_probe(config: Config) -> None:
    rule = stop_rule("kept", config.probe, config.curate.bands)
    rng = np.random.default_rng(0)
    used = []
    for rate in rng.beta(0.713, 0.682, 4000):
        k = m = 0
        while not rule(k, m):
            k += int(rng.random() < rate)
            m += 1
        used.append(m)
    assert np.mean(used) == pytest.approx(plan_probe(config, 1, EpisodeCost(seconds=1.0)).trials, rel=0.03)


def test_shape_of_the_array(config: Config) -> None:
    config.episode.concurrency = 16
    cost = EpisodeCost(seconds=120.0)
    assert plan_probe(config, 40, cost, hours=0.1).array_tasks == 2  # a replica has no fewer tasks than slots
    many = plan_probe(config, 20_000, cost, hours=2.0, max_array_tasks=1_000)
    assert many.hours_each <= 2.05
    assert plan_probe(config, 20_000, cost, hours=2.0, max_array_tasks=4).array_tasks == 4
    assert plan_probe(config, 5, cost).array_tasks == 1
    # One task's trials run one after the other: no array is faster than the longest task.
    assert plan_probe(config, 5, cost, startup_seconds=0).hours_each == pytest.approx(8 * 120 / 3600)


def test_bounded_rule_states_its_error(config: Config) -> None:
    config.probe.stop, config.probe.trials = "bounded", 16
    text = "\n".join(plan_probe(config, 100, EpisodeCost(seconds=1.0)).lines())
    assert "decisions that differ  1.92% expected" in text


def test_measured(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    with Journal(tmp_path / "shards" / "0.jsonl") as journal:
        for index, (outcome, seconds, attempt) in enumerate(
            [(Outcome.PASS, 10.0, 1), (Outcome.FAIL, 30.0, 2), (Outcome.VOID, 20.0, 3)]
        ):
            record = made.record("a.py:x", index, outcome)
            record.seconds, record.attempt = {"total": seconds}, attempt
            journal.append(record.to_json())
    cost = EpisodeCost.measured(tmp_path)
    assert (cost.seconds, cost.attempts) == (20.0, 3.0)
    assert "measured over 3 trials" in cost.basis
    (tmp_path / "run").mkdir()
    (tmp_path / "shards").rename(tmp_path / "run" / "shards")
    (tmp_path / "run").rename(tmp_path / "probe")
    assert EpisodeCost.measured(tmp_path).seconds == 20.0
    (tmp_path / "none" / "shards").mkdir(parents=True)
    with pytest.raises(UserError, match="no valid trial"):
        EpisodeCost.measured(tmp_path / "none")


@pytest.mark.parametrize(
    ("tasks", "seconds", "array_tasks", "says"),
    [
        (0, 1.0, None, "no task"),
        (5, 0.0, None, "seconds per episode"),
        (5, 1.0, 6, "6 array tasks"),
        (5, 1.0, 0, "0 array"),
    ],
)
def test_mistakes(config: Config, tasks: int, seconds: float, array_tasks: int | None, says: str) -> None:
    with pytest.raises(UserError, match=says):
        plan_probe(config, tasks, EpisodeCost(seconds=seconds), array_tasks=array_tasks)
