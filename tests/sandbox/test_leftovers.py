"""However a client ends, its sandbox leaves no process, no file, and runs the teardown of what it initialised."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "the condition did not come about"
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["end of input", signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_client_that_ends(
    how: str | signal.Signals,
    tmp_path: Path,
    alive: Callable[[int], bool],
    descendants: Callable[[int], set[int]],
) -> None:
    trace = tmp_path / "trace"
    command = [sys.executable, str(HERE / "episodes_for_ever.py"), str(HERE / "servers" / "careless.py"), str(trace)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as client:
        assert client.stdout is not None
        folder = Path(json.loads(client.stdout.readline())["folder"])
        assert folder.parent == tmp_path
        pids = descendants(client.pid)
        assert len(pids) == 8  # two warm parents, two snapshots, three worlds, one plain server
        if isinstance(how, signal.Signals):
            client.send_signal(how)
        else:
            assert client.stdin is not None
            client.stdin.close()
        client.wait(timeout=60)
    wait_until(lambda: not any(alive(pid) for pid in pids))
    wait_until(lambda: not folder.exists())
    # Of the snapshot, of the world that initialised itself, and of the snapshot that was tried for it. The plain
    # server's needs a client.
    expected = 3 if how in (signal.SIGKILL, signal.SIGTERM) else 4
    assert trace.read_text().split().count("teardown") == expected


def test_a_parent_told_to_end_ends_its_worlds(
    tmp_path: Path, alive: Callable[[int], bool], descendants: Callable[[int], set[int]]
) -> None:
    trace = tmp_path / "trace"
    command = [sys.executable, str(HERE / "episodes_for_ever.py"), str(HERE / "servers" / "careless.py"), str(trace)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as client:
        assert client.stdout is not None
        folder = Path(json.loads(client.stdout.readline())["folder"])
        # Slurm sends SIGTERM to every process of a step.
        pids = descendants(client.pid)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(alive(pid) for pid in pids))
        assert trace.read_text().split().count("teardown") == 3
        assert client.poll() is None
        assert client.stdin is not None
        client.stdin.close()
        client.wait(timeout=60)
    assert not folder.exists()
