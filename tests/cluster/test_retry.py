"""Whether a failed start is worth another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stateward.cluster.rendezvous import Rendezvous, start_folder
from stateward.cluster.retry import main, worth_another


def start(number: int) -> dict[str, str]:
    return {"SLURM_JOB_ID": "8", "SLURM_HET_JOB_ID": "7", "SLURM_RESTART_COUNT": str(number)}


def give_up(shared: Path, number: int, cause: str, rank: int = 1) -> None:
    folder = start_folder(shared, start(number))
    folder.mkdir(parents=True, exist_ok=True)
    Rendezvous(folder, rank=rank, size=3, deadline_seconds=1).give_up("gpu1", cause)


TOLD = "plan/driver_result.json"


def again(shared: Path, number: int, status: int = 1) -> tuple[bool, str]:
    return worth_another(shared, status=status, progress="checkpoints/*/VERIFIED", env=start(number), told=TOLD)


def driver_ends(shared: Path, number: int, error: str) -> None:
    """A start whose ranks were all well."""
    Rendezvous(start_folder(shared, start(number)), rank=0, size=3, deadline_seconds=1).open()
    (shared / TOLD).parent.mkdir(exist_ok=True)
    (shared / TOLD).write_text(json.dumps({"ok": False, "error": error}))


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


def test_a_users_mistake_and_a_dead_end_are_never_retried(tmp_path: Path) -> None:
    assert not again(tmp_path, 0, status=2)[0]
    driver_ends(tmp_path, 1, "only 3 of 18 groups carry a signal")
    said = "only 3 of 18 groups carry a signal: another start would come to the same end"
    assert again(tmp_path, 1, status=3) == (False, said)


def test_two_faults_of_the_driver_are_two_failures_and_one_twice_is_final(tmp_path: Path) -> None:
    for number, error in enumerate(["process 4711 out of memory", "a host died", "a host died"]):
        driver_ends(tmp_path, number, error)
        yes, why = again(tmp_path, number)
        assert yes is (number < 2)
        assert why.startswith(error)


def test_what_an_earlier_starts_driver_said_is_not_this_ones_cause(tmp_path: Path) -> None:
    driver_ends(tmp_path, 0, "a host died")
    os.utime(tmp_path / TOLD, (1, 1))  # long before the start that comes now
    Rendezvous(start_folder(tmp_path, start(1)), rank=0, size=3, deadline_seconds=1).open()
    assert again(tmp_path, 1) == (True, "the step ended with status 1")
    driver_ends(tmp_path, 2, "a host died")
    give_up(tmp_path, 2, "raylet ended")
    assert again(tmp_path, 2) == (True, "rank 1: raylet ended")


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
