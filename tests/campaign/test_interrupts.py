"""A stage that is interrupted closes what is open, however often it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

#: Work that takes a second to close: in plain code, and in tasks of an event loop.
PLAIN = """
import threading, time
def main(arguments):
    try:
        print("ready", flush=True)
        threading.Event().wait()
    finally:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            time.sleep(0.01)
        print("closed", flush=True)
"""
TASKS = """
import asyncio
from stateward.campaign.interrupts import run
async def hold():
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(1.0)
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
import time
from stateward.campaign.interrupts import run
async def work():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        time.sleep(1.0)
        print("closed", flush=True)
def main(arguments):
    run(work())
"""
END = """
from stateward.campaign.cli import entry
entry(main)
"""


@pytest.fixture(params=[PLAIN, TASKS, STARTS], ids=["plain", "tasks", "starts"])
def stage(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", request.param + END], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_an_order_that_comes_several_times_closes_once(stage: subprocess.Popen[str], first: signal.Signals) -> None:
    stage.send_signal(first)
    for _ in range(10):  # within the second that closing takes
        time.sleep(0.05)
        stage.send_signal(signal.SIGTERM)
    said, error = stage.communicate(timeout=120)
    assert (said, stage.returncode) == ("closed\n", 130), error
    assert error == "interrupted; the same command goes on from here\n"


def test_a_second_ctrl_c_cuts_the_closing_short(stage: subprocess.Popen[str]) -> None:
    stage.send_signal(signal.SIGINT)
    time.sleep(0.2)
    stage.send_signal(signal.SIGINT)
    said, error = stage.communicate(timeout=120)
    assert (said, stage.returncode) == ("", 130), error
