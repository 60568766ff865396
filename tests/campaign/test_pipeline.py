"""The stages of a local campaign, and how one that fails ends it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stateward.campaign.pipeline import Step, plan_lines, run_steps, steps
from stateward.config.load import load_config

PRACTICE = str(Path(__file__).parents[2] / "configs" / "practice.yaml")


def arguments(step: Step) -> list[str]:
    return [Path(step.command[1]).name, *step.command[2:]]


def test_one_training() -> None:
    config = load_config(PRACTICE, ["run_dir=runs/x"])
    commands = [arguments(step) for step in steps(PRACTICE, config, ["train.steps=3"])]
    assert [c[0] for c in commands] == [*("probe.py", "curate.py", "train.py", "merge.py", "evaluate.py", "report.py")]
    assert "--evaluate-base" in commands[0], "probe and evaluation of the base share a server"
    assert all("train.steps=3" in c for c in commands[:-1])
    assert not any("--seeds" in c or "--model" in c for c in commands)


def test_each_seed_is_trained_merged_and_evaluated() -> None:
    config = load_config(PRACTICE, ["run_dir=/runs/x"])
    commands = [arguments(step) for step in steps(PRACTICE, config, [], seeds=2)]
    for name in ("train.py", "merge.py"):
        (command,) = (c for c in commands if c[0] == name)
        assert command[-2:] == ["--seeds", "2"]
    evaluated = {c[c.index("--label") + 1]: c for c in commands if c[0] == "evaluate.py"}
    assert list(evaluated) == ["tuned-seed1", "tuned-seed2"]
    assert evaluated["tuned-seed2"][-2:] == ["--model", "/runs/x/seeds/2/merged"]


def test_many_evaluations_are_told_by_the_first_and_the_last() -> None:
    config = load_config(PRACTICE, ["run_dir=runs/x"])
    lines = list(plan_lines(steps(PRACTICE, config, [], seeds=1000)))
    told = [line for line in lines if "seed" in line and not line.startswith(("  ", "train:"))]
    assert [line.split(":")[0] for line in told] == [
        *("evaluate tuned-seed1", "... and of seeds 2 to 999 likewise", "evaluate tuned-seed1000")
    ]
    assert len(list(plan_lines(steps(PRACTICE, config, [], seeds=3)))) == 2 * (5 + 3)


def test_the_first_stage_that_fails_ends_the_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "ran"
    plan = [
        Step(title="good", command=[sys.executable, "-c", "pass"]),
        Step(title="bad", command=[sys.executable, "-c", "raise SystemExit(3)"]),
        Step(title="never", command=[sys.executable, "-c", f"open({str(mark)!r}, 'w')"]),
    ]
    assert run_steps(plan) == 3
    assert not mark.exists()
    assert "stopped in stage 2 (bad) with status 3" in capsys.readouterr().out
