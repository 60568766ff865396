"""A server's temporary folder goes with its last user, whoever is killed first."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stateward.cluster.services.scratch import MAX_FOLDER, scratch_folder
from stateward.errors import UserError

#: Opens a folder, starts an heir in a session of its own, tells both, and waits to be killed.
STARTER = """
import subprocess, sys
from stateward.cluster.services.scratch import scratch_folder
with scratch_folder("sw-test-") as scratch:
    (scratch.folder / "a socket").touch()
    heir = subprocess.Popen(["sleep", "600"], pass_fds=(scratch.hold,), start_new_session=True)
    print(heir.pid, scratch.folder, flush=True)
    sys.stdin.read()
"""


def test_it_is_private_and_goes_with_the_block() -> None:
    with scratch_folder("sw-test-") as scratch:
        assert scratch.folder.stat().st_mode & 0o777 == 0o700
        (scratch.folder / "kept open").mkdir()
        (scratch.folder / "kept open" / "file").write_text("x")
    assert not scratch.folder.exists()


def test_it_goes_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder("sw-test-") as scratch:
        raise ZeroDivisionError
    assert not scratch.folder.exists()


@pytest.mark.parametrize("first", ["starter", "heir"])
def test_it_stays_until_starter_and_server_are_both_killed(first: str) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        heir, _, name = starter.stdout.readline().strip().partition(" ")
        folder = Path(name)
        watch = os.pidfd_open(_sweeper(folder))
        if first == "starter":
            starter.kill()
            starter.wait()
            assert folder.is_dir(), "the server still uses it"
            os.kill(int(heir), 9)
        else:
            os.kill(int(heir), 9)
            assert folder.is_dir()
            starter.kill()
    _wait(watch)
    assert not folder.exists()


def _sweeper(folder: Path) -> int:
    """The shell whose argument is the folder."""
    (found,) = [
        int(process.name)
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and _arguments(process)[-1:] == [str(folder)]
    ]
    return found


def _arguments(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def _wait(pidfd: int) -> None:

    ready, _, _ = select.select([pidfd], [], [], 60)
    os.close(pidfd)
    assert ready, "the sweeper has not ended"


def test_a_long_temporary_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * MAX_FOLDER)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with scratch_folder("sw-test-") as scratch:
        assert scratch.folder.parent == Path("/tmp")
        assert len(f"{scratch.folder}/{'u' * 36}") <= 107
    monkeypatch.setattr("stateward.cluster.services.scratch._SHORT", str(long))
    with pytest.raises(UserError, match=r"allows 107 bytes a path, so it may have \d+"), scratch_folder("sw-test-"):
        pass
