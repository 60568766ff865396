"""Real Verl, Ray, FSDP and vLLM on the CPU: any process is killed at any time, and still it is the same training.

CHAOS_SEED chooses the times and the processes, CHAOS_ROUNDS says how often. Every round prints what it killed. A start
takes a hundred times as long as a step, so that a time at random would nearly always be before the first step: of four
kills one comes there, and three within the next step or the one after it, wherever in them (episodes, log-probs,
update, checkpoint, weights to the engine).
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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


def steps(run_dir: Path) -> int:
    """The last step that is done."""
    return max((int(line["step"]) for line in read_lines(TrainPaths.of(run_dir).metrics)), default=0)


@dataclass
class Killer:
    """Kills a process of the run in `run_dir`, `delay` seconds after it came to `step`, or after its start.

    The run is held before `step` until then, and before the step after it for good, so that it cannot get away.
    """

    runs: Any
    run_dir: Path
    number: random.Random
    delay: float
    step: int
    at_start: bool
    told: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        where = "after the start" if self.at_start else f"into step {self.step}"
        return f"killed {', '.join(self.told)} {self.delay:.2f} s {where}"

    def __enter__(self) -> Killer:
        plan = TrainPaths.of(self.run_dir).plan
        plan.mkdir(parents=True, exist_ok=True)
        self.holds = [plan / f"hold-{self.step}", plan / f"hold-{self.step + 1}"]
        for hold in self.holds:
            hold.touch()
        self.thread = threading.Thread(target=self._kill)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        for hold in self.holds:
            hold.unlink(missing_ok=True)

    def _held(self) -> bool:
        """The step before is done, and episodes are under way."""
        running = self.runs.processes(
            self.run_dir, lambda process: "EpisodeHost.run_group" in " ".join(process.cmdline())
        )
        return steps(self.run_dir) >= self.step - 1 and bool(running)

    def _kill(self) -> None:
        if not self.at_start:
            while not self._held():
                if self.over.wait(0.1):
                    return
            self.holds[0].unlink()
        patience = self.delay
        while not self.over.wait(patience):  # until the run has ended: it can do without some of its processes
            try:
                chosen = victim(
                    self.number,
                    self.runs.processes(self.run_dir, lambda process: process.status() != psutil.STATUS_ZOMBIE),
                )
                self.told.append(kind(chosen))
                chosen.kill()
                patience = 60.0
            except (psutil.NoSuchProcess, IndexError):  # it ended just now, or nothing runs yet
                patience = 0.1


def test_killed_anywhere_at_any_time_it_is_the_same_training(small_runs: Any, trained: Any, tmp_path: Path) -> None:
    seed, rounds = int(os.environ.get("CHAOS_SEED", "1")), int(os.environ.get("CHAOS_ROUNDS", "6"))
    number = random.Random(seed)
    small_runs.engine = "vllm"
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    target = 2 * rounds + 2  # a round leads two steps on at most
    settings = {"steps": target, "watchdog_minutes": 15.0}
    start_seconds, step_seconds = 60.0, 1.0
    with ThreadPoolExecutor(1) as beside:
        left = beside.submit(small_runs.train, alone, **settings)
        for round_ in range(rounds):
            at_start = round_ % 4 == 3
            delay = number.uniform(0, start_seconds if at_start else 1.5 * step_seconds)
            step = steps(stopped) + (1 if at_start else number.choice([1, 2]))
            killer = Killer(small_runs, stopped, number, delay, step, at_start)
            began = time.monotonic()
            with killer:
                try:
                    came = f"{small_runs.train(stopped, **settings).steps} steps"
                except SystemFault as fault:
                    came = str(fault).splitlines()[0]
            took = time.monotonic() - began
            print(f"\nround {round_ + 1}: {killer}; {came}; {took:.0f} s; {steps(stopped)} steps are done", flush=True)
            assert killer.told, "nothing was killed"
            assert not small_runs.processes(stopped), "processes are left over"
            for line in read_lines(TrainPaths.of(stopped).metrics)[-1:]:
                start_seconds, step_seconds = took, line["seconds"].get("step", step_seconds)
        assert left.result().steps == target
    assert small_runs.train(stopped, **settings).steps == target
    difference = trained(alone).difference(trained(stopped))
    print(f"greatest differences: {difference}")
    assert not any(difference.values()), difference
