"""A stage that is interrupted closes what is open, however often it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

#: Work whose closing says that it has begun and lasts until it is let go: in plain code, and in tasks of an event loop.
PLAIN = """
import sys, threading
def main(arguments):
    try:
        print("ready", flush=True)
        threading.Event().wait()
    finally:
        print("closing", flush=True)
        sys.stdin.readline()
        print("closed", flush=True)
"""
TASKS = """
import asyncio, select, sys
from stateward.cluster.interrupts import run
async def hold():
    try:
        await asyncio.Event().wait()
    finally:
        print("closing", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            await asyncio.sleep(0.01)
        print("closed", flush=True)
async def work():
    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
        await asyncio.sleep(0)
        print("ready", flush=True)
def main(arguments):
    run(work())
"""
#: The main task waits without its loop, as for an engine to start.
STARTS = """
import sys, time
from stateward.cluster.interrupts import run
async def work():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("closing", flush=True)
        sys.stdin.readline()
        print("closed", flush=True)
def main(arguments):
    run(work())
"""
END = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where pytest is a shell's background job
from stateward.campaign.cli import entry
entry(main)
"""


@pytest.fixture(params=[PLAIN, TASKS, STARTS], ids=["plain", "tasks", "starts"])
def stage(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", request.param + END], text=True, **pipes)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()


def interrupted(stage: subprocess.Popen[str], number: signal.Signals) -> None:
    """Until it closes."""
    stage.send_signal(number)
    assert stage.stdout
    assert stage.stdout.readline() == "closing\n"


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_an_order_that_comes_several_times_closes_once(stage: subprocess.Popen[str], first: signal.Signals) -> None:
    interrupted(stage, first)
    for _ in range(10):
        stage.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    said, error = stage.communicate("go\n", timeout=120)
    assert (said, stage.returncode) == ("closed\n", 130), error
    assert error == "interrupted; the same command goes on from here\n"


def test_a_second_ctrl_c_cuts_the_closing_short(stage: subprocess.Popen[str]) -> None:
    interrupted(stage, signal.SIGINT)
    stage.send_signal(signal.SIGINT)
    stage.wait(timeout=120)  # nobody lets it go
    said, error = stage.communicate()
    assert (said, stage.returncode) == ("", 130), error
