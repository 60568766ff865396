"""Mistakes on the command line: what, why, what to do, status 2, and nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.campaign.cli import configured, stage_parser
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
PRACTICE = ["--config", "configs/practice.yaml"]


def refused(command: list[str], run_dir: Path, *, path: str = os.environ["PATH"]) -> str:
    """What `command` says of its mistake."""
    done = subprocess.run(
        [sys.executable, *command, "--run-dir", str(run_dir)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("stage", "arguments", "text"),
    [
        ("train", ["episode.user.kind=simulatr"], "did you mean 'simulator'?"),
        ("merge", ["episode.judge.kind=scripted"], "valid: chat, none, simulator"),
        ("train", ["episode.user.kind=simulator"], "simulator.model='' is not a checkpoint"),
        ("probe", ["episode.user.kind=simulator", "simulator.model=nowhere"], "simulator.model='nowhere'"),
        ("evaluate", ["--label", "base", "episode.judge.kind=simulator"], "simulator.model=''"),
        ("evaluate", ["--label", "a/b"], "cannot name a folder"),
        ("evaluate", ["--label", "base", "evaluate.trials=-2"], "evaluate.trials=-2"),
        ("evaluate", ["--label", "base", "serve.replicas=0"], "serve.replicas=0"),
        ("evaluate", ["--label", "base", "--shards", "0"], "0 shards"),
        ("pipeline", ["simulator.tensor_parallel=-1"], "simulator.tensor_parallel=-1"),
        ("train", ["--seeds", "0"], "--seeds 0"),
        ("train", ["train.learning_rate=nan"], "train.learning_rate=nan"),
        ("merge", ["--after", "1;rm x", "--cluster", "practice"], "no job's id"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(stage: str, arguments: list[str], text: str, tmp_path: Path) -> None:
    said = refused([f"jobs/{stage}.py", *PRACTICE, "--dry-run", *arguments], tmp_path / "run")
    assert text in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["jobs/pipeline.py", *PRACTICE],
        ["jobs/evaluate.py", *PRACTICE, "--label", "base", "--array"],
        ["jobs/merge.py", *PRACTICE, "--after", "71"],
    ],
)
def test_a_machine_without_slurm(command: list[str], tmp_path: Path) -> None:
    said = refused([*command, "--cluster", "practice"], tmp_path / "run", path=str(tmp_path))
    assert "sbatch is not on PATH" in said
    assert "call this on a login node" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["jobs/pipeline.py", *PRACTICE],
        ["jobs/probe.py", *PRACTICE, "--array"],
        ["jobs/merge.py", *PRACTICE, "--after", "71"],
    ],
)
def test_slurm_clients_that_find_no_cluster(command: list[str], tmp_path: Path) -> None:
    for name in ("sbatch", "squeue"):
        client = tmp_path / name
        client.write_text("#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n")
        client.chmod(0o755)
    command = [*command, "--cluster", "practice"]
    assert "SLURM_CONF" in refused(command, tmp_path / "run", path=f"{tmp_path}:{os.environ['PATH']}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["pipeline.py"], ["probe.py", "--array"]])
def test_a_campaign_on_cpus_holds_no_gpus_of_a_cluster(command: list[str], tmp_path: Path) -> None:
    given = [f"jobs/{command[0]}", *PRACTICE, *command[1:], "--cluster", "h100", "--dry-run"]
    assert "the profile 'h100' holds 8 GPUs for each array task" in refused(given, tmp_path / "run")


@pytest.mark.parametrize("run_dir", ["file", "file/below"])
@pytest.mark.parametrize("stage", ["probe", "curate", "train", "merge", "pipeline"])
def test_a_run_directory_that_is_a_file(stage: str, run_dir: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in refused([f"jobs/{stage}.py", *PRACTICE], tmp_path / run_dir)


def test_a_run_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "closed")  # root may write anywhere
    given = [*PRACTICE, "--run-dir", str(tmp_path / "closed" / "deep" / "run")]
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match="run directory") as refusal:
        configured(stage_parser("").parse_args(given))
    assert "nothing can be written" in refusal.value.why
    assert configured(stage_parser("").parse_args([*given, "--dry-run"])).name == "practice"


@pytest.mark.parametrize(("raised", "status"), [("UserError", 2), ("DeadEnd", 3), ("SystemFault", 1)])
def test_how_an_entry_point_ends_says_whether_another_call_may_help(raised: str, status: int) -> None:
    arguments = '"training", "it stopped"' if raised == "SystemFault" else '"it stopped"'
    code = (
        "from stateward import errors\n"
        "from stateward.campaign.cli import entry\n"
        "def main(argv):\n"
        f"    raise errors.{raised}({arguments})\n"
        "entry(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr, "it stopped" in done.stderr) == (status, False, True)
