"""One training at a time in a run directory."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.errors import SystemFault, UserError
from stateward.store import lock
from stateward.training.sole_run import sole_run


def test_a_second_is_told_who_is_there(tmp_path: Path) -> None:
    path = tmp_path / "train" / "lock"
    with sole_run(path), pytest.raises(UserError, match=rf"held by process {os.getpid()} on "), sole_run(path):
        pass
    with sole_run(path):  # it went with the first
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_it_goes_with_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom stateward.training.sole_run import sole_run\n"
        f"with sole_run(Path({str(path)!r})):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert json.loads(path.read_text())["pid"] != os.getpid()
    with sole_run(path):
        pass


def test_an_earlier_start_of_the_same_job_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    with sole_run(tmp_path / "lock"):
        with pytest.raises(SystemFault, match="job 71"), sole_run(tmp_path / "lock"):
            pass
        monkeypatch.setenv("SLURM_JOB_ID", "72")
        with pytest.raises(UserError, match="job 71"), sole_run(tmp_path / "lock"):
            pass


def test_a_file_system_without_locks_is_said_and_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(error: int) -> None:
        def flock(*_: object) -> None:
            raise OSError(error, os.strerror(error))

        monkeypatch.setattr(lock.fcntl, "flock", flock)

    refuse(errno.ENOLCK)
    with sole_run(tmp_path / "lock"):
        assert "has no locks" in capsys.readouterr().out
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output"), sole_run(tmp_path / "lock"):
        pass
