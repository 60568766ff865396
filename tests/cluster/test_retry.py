"""Whether a failed start is worth another."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateward.cluster.rendezvous import Rendezvous, start_folder
from stateward.cluster.retry import main, worth_another


def start(number: int) -> dict[str, str]:
    return {"SLURM_JOB_ID": "8", "SLURM_HET_JOB_ID": "7", "SLURM_RESTART_COUNT": str(number)}


def give_up(shared: Path, number: int, cause: str, rank: int = 1) -> None:
    folder = start_folder(shared, start(number))
    folder.mkdir(parents=True)
    Rendezvous(folder, rank=rank, size=3, deadline_seconds=1).give_up("gpu1", cause)


def again(shared: Path, number: int, status: int = 1) -> tuple[bool, str]:
    return worth_another(shared, status=status, progress="checkpoints/*/VERIFIED", env=start(number))


def test_the_same_failure_twice_with_nothing_gained_is_final(tmp_path: Path) -> None:
    give_up(tmp_path, 0, "raylet 4711 ended")
    give_up(tmp_path, 1, "raylet 12 ended")
    assert again(tmp_path, 0) == (True, "rank 1: raylet 4711 ended")
    yes, why = again(tmp_path, 1)
    assert not yes
    assert "raylet 12 ended" in why
    assert "nothing was gained" in why


def test_progress_or_another_cause_is_worth_another_start(tmp_path: Path) -> None:
    give_up(tmp_path, 0, "raylet ended")
    give_up(tmp_path, 1, "raylet ended")
    give_up(tmp_path, 2, "no report of rank two")
    assert again(tmp_path, 0)[0]
    mark = tmp_path / "checkpoints" / "global_step_5" / "VERIFIED"
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert again(tmp_path, 1)[0]
    assert again(tmp_path, 2)[0]


def test_a_users_mistake_is_never_retried(tmp_path: Path) -> None:
    assert not again(tmp_path, 0, status=2)[0]


def test_a_status_alone_is_a_cause_too(tmp_path: Path) -> None:
    assert again(tmp_path, 0, status=137) == (True, "the step ended with status 137")
    assert again(tmp_path, 1, status=1)[0]
    assert not again(tmp_path, 2, status=1)[0]


def test_the_program_answers_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in start(0).items():
        monkeypatch.setenv(name, value)
    arguments = ["--shared", str(tmp_path), "--status", "1", "--progress", "checkpoints/*/VERIFIED"]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert capsys.readouterr().out.splitlines()[1].startswith("no other start: the step ended with status 1")
