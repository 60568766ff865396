"""Real Verl, Ray, FSDP and vLLM on the CPU: any process is killed at any time, and still it is the same training.

CHAOS_SEED chooses the times and the processes, CHAOS_ROUNDS says how often. Every round prints what it killed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from stateward.errors import SystemFault
from stateward.training.figures import read_lines
from stateward.training.paths import TrainPaths

pytestmark = [pytest.mark.engines, pytest.mark.chaos, pytest.mark.timeout(7200)]

pytest.importorskip("torch")
pytest.importorskip("verl")

STEPS = 8


def kind(process: psutil.Process) -> str:
    """What it is: the module it runs, or the name that it gave itself."""
    words = process.cmdline() or [process.name()]
    return next((word for word in words if "stateward." in word), words[0]).split("/")[-1].strip()


def victim(number: random.Random, processes: list[psutil.Process]) -> psutil.Process:
    """One of the run's processes; each kind (driver, host, trainer, engine, Ray's daemons) as likely as any other."""
    kinds: dict[str, list[psutil.Process]] = {}
    for process in processes:
        kinds.setdefault(kind(process), []).append(process)
    return number.choice(kinds[number.choice(sorted(kinds))])


def kill_one(number: random.Random, processes: list[psutil.Process]) -> str:
    alive = [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]
    if not alive:
        return "nothing was running"
    chosen = victim(number, alive)
    what = kind(chosen)
    chosen.kill()
    return f"killed {what}"


def steps(run_dir: Path) -> list[int]:
    return [line["step"] for line in read_lines(TrainPaths.of(run_dir).metrics)]


def test_killed_anywhere_at_any_time_it_is_the_same_training(small_runs: Any, trained: Any, tmp_path: Path) -> None:
    seed, rounds = int(os.environ.get("CHAOS_SEED", "1")), int(os.environ.get("CHAOS_ROUNDS", "6"))
    number = random.Random(seed)
    small_runs.engine = "vllm"
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    began = time.monotonic()
    assert small_runs.train(alone, steps=STEPS).steps == STEPS
    took = time.monotonic() - began
    print(f"\nleft alone: {STEPS} steps in {took:.0f} s", flush=True)
    for round_ in range(rounds):
        delay = number.uniform(0, 1.1 * took)
        told: list[str] = []
        timer = threading.Timer(delay, lambda told=told: told.append(kill_one(number, small_runs.processes(stopped))))
        timer.start()
        began = time.monotonic()
        try:
            came = f"{small_runs.train(stopped, steps=STEPS).steps} steps"
        except SystemFault as fault:
            came = str(fault).splitlines()[0]
        finally:
            timer.cancel()
            timer.join()
        ended = time.monotonic() - began
        done = len(steps(stopped))
        print(
            f"round {round_ + 1}: {told or 'not yet killed'} after {delay:.0f} s; {came}; {ended:.0f} s; {done} steps"
        )
        assert not small_runs.processes(stopped), "processes are left over"
    assert small_runs.train(stopped, steps=STEPS).steps == STEPS
    difference = trained(alone).difference(trained(stopped))
    print(f"greatest differences: {difference}")
    assert not any(difference.values()), difference
