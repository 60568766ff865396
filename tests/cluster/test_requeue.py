"""A task of an array that is told to put itself back, by however many signals and with a controller that is busy."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stateward.cluster.requeue import until_heard

WORK = """
import pathlib, signal

def hold(file):
    pathlib.Path(file).with_suffix(".holding").touch()
    while True:
        signal.pause()

def end(file):
    pathlib.Path(file).with_suffix(".ended").touch()
"""

#: Refuses as often as the file beside it has lines, then notes what it was asked. It shows a job as `state` has it.
SCONTROL = """#!/bin/sh
cd "$(dirname "$0")"
[ "$1" != show ] || exec cat state
if [ -s refusals ]; then
    sed -i 1d refusals
    echo 'slurm_requeue error: Unable to contact slurm controller (connect failure)' >&2
    exit 1
fi
sleep 0.3
echo "$@" >> asked
"""


class Task:
    """The only task of array 7, as its node starts it, in a process group of its own as in a step of Slurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "taskwork.py").write_text(WORK)
        (folder / "bin").mkdir()
        (folder / "bin" / "scontrol").write_text(SCONTROL)
        (folder / "bin" / "scontrol").chmod(0o755)
        (folder / "bin" / "refusals").touch()
        self.holding, self.ended = folder / "0.holding", folder / "0.ended"
        self.pickle, self.result = folder / "7_0_submitted.pkl", folder / "7_0_0_result.pkl"

    def start(self, function: str) -> subprocess.Popen[str]:
        array = {"function": f"taskwork:{function}", "minutes": 30, "timeouts": 4, "tasks": [[f"{self.folder}/0.json"]]}
        (self.folder / "array.json").write_text(json.dumps(array))
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        env |= {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "SLURM_PROCID": "0"}
        env |= {"SUBMITIT_EXECUTOR": "slurm", "PYTHONPATH": str(self.folder)}
        env["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{env['PATH']}"
        return subprocess.Popen(
            [sys.executable, "-m", "stateward.cluster.array_task", str(self.folder), str(self.folder / "array.json")],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def held(self) -> subprocess.Popen[str]:
        """Started, and in its work."""
        process = self.start("hold")
        deadline = time.monotonic() + 120
        while not self.holding.exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return process

    def asked(self) -> list[str]:
        asked = self.folder / "bin" / "asked"
        return asked.read_text().splitlines() if asked.exists() else []


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def test_however_often_the_signal_comes_it_is_one_order(task: Task) -> None:
    process = task.held()
    while process.poll() is None:  # to every process of the group, scontrol among them
        os.killpg(process.pid, signal.SIGUSR2)
        time.sleep(0.001)
    _, error = process.communicate()
    assert process.returncode == 255, error  # submitit's own way to leave
    assert task.asked() == ["requeue 7_0"]
    assert pickle.loads(task.pickle.read_bytes())._timeout_countdown == 4
    assert not task.result.exists()


def test_a_controller_that_is_busy_is_asked_again(task: Task) -> None:
    (task.folder / "bin" / "refusals").write_text("once\ntwice\n")
    process = task.held()
    process.send_signal(signal.SIGUSR2)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 255, error
    assert error.count("not put back yet") == 2
    assert task.asked() == ["requeue 7_0"]


def test_what_a_kill_left_half_written_stops_no_later_start(task: Task) -> None:
    for file in (task.pickle, task.result):
        Path(f"{file}.save_tmp").write_text("half")
    process = task.held()
    process.send_signal(signal.SIGUSR2)
    assert process.wait(timeout=240) == 255
    process.communicate()
    assert task.asked() == ["requeue 7_0"]
    task.pickle.unlink()
    Path(f"{task.result}.save_tmp").write_text("half")
    process = task.start("end")
    _, error = process.communicate(timeout=240)
    assert process.returncode == 0, error
    assert task.ended.exists()
    assert task.result.exists()


def stopped(task: Task, state: str) -> str:
    """What a task said that got SIGTERM while Slurm held it for `state`."""
    (task.folder / "bin" / "state").write_text(f"JobId=9 ArrayJobId=7 ArrayTaskId=0 JobState={state} Reason=None\n")
    process = task.held()
    for _ in range(5):  # one order, however often it comes
        process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGTERM, error
    assert not task.result.exists()
    return error


def test_an_order_to_stop_ends_a_task_that_was_cancelled(task: Task) -> None:
    stopped(task, "CANCELLED")
    assert task.asked() == []


def test_a_task_that_is_preempted_without_a_signal_of_its_own_puts_itself_back(task: Task) -> None:
    stopped(task, "RUNNING")
    assert task.asked() == ["requeue 7_0"]
    assert pickle.loads(task.pickle.read_bytes())._timeout_countdown == 4  # it costs none of its time-outs


def test_a_node_without_scontrol_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def ask(countdown: int) -> None:
        subprocess.check_call(["/nowhere/scontrol", "requeue", "7_0"])

    with pytest.raises(SystemExit) as ended:
        until_heard(ask)(3)
    assert ended.value.code == 1
    assert "did not put the job back: submit it again, it goes on where it stopped" in capsys.readouterr().err
