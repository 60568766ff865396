"""Mistakes on the command line: what, why, what to do, status 2, and nothing is written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stateward.campaign.cli import configured, stage_parser, status_of
from stateward.errors import DeadEnd, SystemFault, UserError

ROOT = Path(__file__).parents[2]
PRACTICE = ["--config", "configs/practice.yaml"]


Refused = Callable[..., str]


@pytest.fixture
def refused(run_job: Callable[..., subprocess.CompletedProcess[str]]) -> Refused:
    """What a job says of a mistake in its arguments."""

    def said(command: list[str], run_dir: Path, *, path: str = os.environ["PATH"]) -> str:
        done = run_job(*command, "--run-dir", run_dir, env={**os.environ, "PATH": path})
        assert done.returncode == 2, done.stderr
        return done.stderr

    return said


@pytest.mark.parametrize(
    ("stage", "arguments", "text"),
    [
        ("train", ["episode.user.kind=simulatr"], "did you mean 'simulator'?"),
        ("merge", ["episode.judge.kind=scripted"], "valid: chat, none, simulator"),
        ("train", ["episode.user.kind=simulator"], "simulator.model='' is not a checkpoint"),
        ("probe", ["episode.user.kind=simulator", "simulator.model=nowhere"], "/nowhere' is not a checkpoint"),
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
def test_a_dry_run_refuses_what_the_run_would(
    refused: Refused, stage: str, arguments: list[str], text: str, tmp_path: Path
) -> None:
    said = refused([stage, *PRACTICE, "--dry-run", *arguments], tmp_path / "run")
    assert text in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", *PRACTICE],
        ["evaluate", *PRACTICE, "--label", "base", "--array"],
        ["merge", *PRACTICE, "--after", "71"],
    ],
)
def test_a_machine_without_slurm(refused: Refused, command: list[str], tmp_path: Path) -> None:
    said = refused([*command, "--cluster", "practice"], tmp_path / "run", path=str(tmp_path))
    assert "sbatch is not on PATH" in said
    assert "call this on a login node" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", *PRACTICE],
        ["probe", *PRACTICE, "--array"],
        ["merge", *PRACTICE, "--after", "71"],
    ],
)
def test_slurm_clients_that_find_no_cluster(refused: Refused, command: list[str], tmp_path: Path) -> None:
    for name in ("sbatch", "squeue"):
        client = tmp_path / name
        client.write_text("#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n")
        client.chmod(0o755)
    command = [*command, "--cluster", "practice"]
    assert "SLURM_CONF" in refused(command, tmp_path / "run", path=f"{tmp_path}:{os.environ['PATH']}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["pipeline"], ["probe", "--array"]])
def test_a_campaign_on_cpus_holds_no_gpus_of_a_cluster(refused: Refused, command: list[str], tmp_path: Path) -> None:
    given = [command[0], *PRACTICE, *command[1:], "--cluster", "h100", "--dry-run"]
    assert "the profile 'h100' holds 8 GPUs for each array task" in refused(given, tmp_path / "run")


@pytest.mark.parametrize("run_dir", ["file", "file/below"])
@pytest.mark.parametrize("stage", ["probe", "curate", "train", "merge", "pipeline"])
def test_a_run_directory_that_is_a_file(refused: Refused, stage: str, run_dir: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in refused([stage, *PRACTICE], tmp_path / run_dir)


def test_a_run_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "closed")  # root may write anywhere
    given = [*PRACTICE, "--run-dir", str(tmp_path / "closed" / "deep" / "run")]
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match="run directory") as refusal:
        configured(stage_parser("").parse_args(given))
    assert "nothing can be written" in refusal.value.why
    assert configured(stage_parser("").parse_args([*given, "--dry-run"])).name == "practice"


@pytest.mark.parametrize(
    ("raised", "status"),
    [(UserError("it stopped"), 2), (DeadEnd("it stopped"), 3), (SystemFault("training", "it stopped"), 1)],
    ids=lambda value: type(value).__name__,
)
def test_how_an_entry_point_ends_says_whether_another_call_may_help(
    raised: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: Sequence[str] | None) -> int:
        raise raised

    assert status_of(main, []) == status
    assert "it stopped" in capsys.readouterr().err
