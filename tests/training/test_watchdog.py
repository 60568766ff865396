"""What stands still is ended, whatever the main thread waits in; what moves is left alone; stacks are there to read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stateward.config import Config
from stateward.config.schema import EpisodeConfig, TrainConfig
from stateward.errors import UserError
from stateward.training import stacks
from stateward.training.watchdog import STATUS, Watchdog, check_patience


def in_a_process(code: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_main_thread_that_waits_for_ever_is_told_and_may_end_its_process_itself() -> None:
    """In a process of its own, here and below: the watchdog that has bitten ends the process that outlives it."""
    process = in_a_process(
        """
        import threading
        from stateward.errors import SystemFault
        from stateward.training.watchdog import Watchdog

        try:
            with Watchdog(0.2, lambda: "3 groups run"):
                threading.Event().wait()
        except SystemFault as fault:
            print(fault)
        """
    )
    told, error = process.communicate()
    assert process.returncode == 0, error
    assert re.fullmatch(r"training: nothing was finished for 0\.0\d* minutes; 3 groups run\n", told)


def test_what_moves_is_left_alone() -> None:
    reports: list[str] = []
    moves = 5
    with Watchdog(1.0, lambda: reports.append("asked") or "") as watchdog:  # type: ignore[func-returns-value]
        for _ in range(moves):
            threading.Event().wait(0.3)
            watchdog.touch()
    assert not reports


def test_nothing_comes_after_the_block() -> None:
    asked = threading.Event()
    with Watchdog(0.2, lambda: asked.set() or ""):  # type: ignore[func-returns-value]
        pass
    assert not asked.wait(0.6)


def test_a_watchdog_that_would_bite_a_long_episode_is_refused() -> None:
    config = Config(train=TrainConfig(watchdog_minutes=10), episode=EpisodeConfig(max_seconds=600))
    with pytest.raises(UserError, match=r"train\.watchdog_minutes=10 with episode\.max_seconds=600"):
        check_patience(config)
    config.train.watchdog_minutes = 10.1
    check_patience(config)


def test_a_main_thread_that_cannot_be_told_is_ended_with_its_stacks() -> None:
    process = in_a_process(
        """
        import threading
        from stateward.training.watchdog import Watchdog

        def deaf():
            while True:
                try:
                    threading.Event().wait()
                except Exception:
                    pass

        with Watchdog(0.1, lambda: "", grace_seconds=0.5):
            deaf()
        """
    )
    _, error = process.communicate()
    assert process.returncode == STATUS
    assert "in deaf" in error


WAITER = """
import sys, threading
from stateward.training import stacks

def waits_here():
    print("ready", flush=True)
    threading.Event().wait()

stacks.register()
waits_here()
"""


def test_processes_of_the_run_write_their_stacks_and_others_are_left_alone(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    processes = [in_a_process(WAITER, **{stacks.LOGS: str(folder)}) for folder in (ours, ours, theirs)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        # A number that was used again: the file names a process that is not of this run.
        stranger = processes[2].pid
        host = next((ours / "stacks").iterdir()).name.rsplit("-", 1)[0]
        (ours / "stacks" / f"{host}-{stranger}.txt").touch()
        assert stacks.request(ours) == sorted(process.pid for process in processes[:2])
        for process in processes[:2]:
            file = ours / "stacks" / f"{host}-{process.pid}.txt"
            deadline = time.monotonic() + 60
            while "in waits_here" not in file.read_text() and time.monotonic() < deadline:
                threading.Event().wait(0.05)
            assert "in waits_here" in file.read_text()
        assert all(process.poll() is None for process in processes)
        assert "in waits_here" not in next((theirs / "stacks").iterdir()).read_text()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class FarHost:
    """A host on another node: answers, is dead, or is silent."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.request_stacks = self

    def remote(self, folder: str) -> FarHost:
        return self


def test_every_node_is_asked_and_one_that_is_silent_or_dead_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")

    def get(host: FarHost) -> Any:
        if isinstance(host.answer, Exception):
            raise host.answer
        return host.answer

    monkeypatch.setattr(
        ray, "wait", lambda refs, **_: ([h for h in refs if h.answer], [h for h in refs if not h.answer])
    )
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(stacks, "request", lambda folder: [11, 12])
    dead = ray.exceptions.RayActorError()
    hosts = [FarHost(dead), FarHost(("gpu1", [7, 11])), FarHost(None), FarHost(("gpu1", [7])), FarHost(("gpu2", [7]))]
    told = stacks.request_everywhere(hosts, tmp_path)
    assert told == f"5 processes of 3 nodes wrote their stacks to {tmp_path / 'stacks'} (2 of 5 hosts did not answer)"
    assert "actor" in capsys.readouterr().err
    assert stacks.request_everywhere([], tmp_path).startswith("2 processes of 1 nodes")


def test_outside_a_run_nothing_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stacks.LOGS, raising=False)
    monkeypatch.chdir(tmp_path)
    stacks.register()
    assert not list(tmp_path.iterdir())
