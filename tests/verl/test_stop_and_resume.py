"""Real Verl, Ray and FSDP on the CPU: killed again and again, and still the same training.

One run is left alone until its last step, in which it stands still for its watchdog to find. Another, beside it, is
stopped by kill -9; each time the same call goes on from the last verified checkpoint. Both must have the same losses
and the same weights. Two kills always: of the driver in a step, and of the trainer's worker in the middle of its
shards. Nightly five: of an episode host, of the worker in a step, and of the driver at the end of a save, too.

The rollout engine is scripted here; `test_killed_anywhere` has vLLM's, and kills any process at any time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from stateward.errors import SystemFault
from stateward.training import verify
from stateward.training.figures import read_lines
from stateward.training.paths import TrainPaths

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

pytest.importorskip("torch")
pytest.importorskip("verl")

#: Of standing still, in which a start must fit as well. The other run takes longer, so it costs nothing.
WATCHDOG_MINUTES = 3.0
COMMON: dict[str, Any] = {"shuffle_rewards": True}  # the control's shuffle must be the same after a resume


def is_driver(process: psutil.Process) -> bool:
    return "stateward.training.driver" in process.cmdline()


def is_worker(process: psutil.Process) -> bool:
    return "WorkerDict" in " ".join(process.cmdline())


def is_host(process: psutil.Process) -> bool:
    return "EpisodeHost" in " ".join(process.cmdline())


def starts(run_dir: Path) -> list[tuple[int, int]]:
    """Step and the start that trained it."""
    return [(line["step"], line["start"]) for line in read_lines(TrainPaths.of(run_dir).metrics)]


@dataclass(frozen=True)
class Stop:
    """Let a run go on until its `step` is under way, then kill what matches `whom` with signal 9; None leaves it there.

    With `saving`, a file of a checkpoint, the run is let into the saving of that step's: in the file's place there is a
    pipe that nobody reads, so whoever is to write it waits there, with what comes before it written.
    """

    step: int
    whom: Callable[[psutil.Process], bool] | None
    saving: str = ""

    def __str__(self) -> str:
        return f"step {self.step}, {self.whom.__name__ if self.whom else 'nobody'} {self.saving}".rstrip()

    @contextmanager
    def of(self, runs: Any, run_dir: Path) -> Iterator[list[float]]:
        """For the run in `run_dir` that the block starts; gives the moment of each kill."""
        killed: list[float] = []
        over = threading.Event()
        plan = TrainPaths.of(run_dir).plan
        plan.mkdir(parents=True, exist_ok=True)
        hold = plan / f"hold-{self.step}"
        hold.touch()
        thread = threading.Thread(target=self._watch, args=(runs, run_dir, hold, killed, over))
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()
            hold.unlink(missing_ok=True)

    def _watch(self, runs: Any, run_dir: Path, hold: Path, killed: list[float], over: threading.Event) -> None:
        def until(holds: Callable[[], Any]) -> bool:
            while not holds():
                if over.wait(0.1):
                    return False
            return True

        def under_way() -> bool:
            """Of this start: the folders of earlier ones are put in order before there is a driver."""
            done = [step for step, _ in starts(run_dir)]
            return done[-1:] == [self.step - 1] and bool(runs.processes(run_dir, is_driver))

        whom = self.whom
        if whom is None or not until(under_way):
            return
        if self.saving:
            folder = TrainPaths.of(run_dir).checkpoints / f"global_step_{self.step}"
            pipe = folder / self.saving
            pipe.parent.mkdir(parents=True)
            os.mkfifo(pipe)
            hold.unlink()
            shards = [file for file in verify.shard_files(folder, 1) if file.suffix == ".pt"]
            before = shards[: shards.index(pipe)]
            if not until(lambda: all(file.is_file() for file in before)):
                return
        until(lambda: runs.processes(run_dir, whom))
        for process in runs.processes(run_dir, whom):
            process.kill()
            killed.append(time.monotonic())


SHARD = "actor/optim_world_size_1_rank_0.pt"
TWO_KILLS = [Stop(2, is_driver), Stop(3, is_worker, saving=SHARD)]
FIVE_KILLS = [
    Stop(2, is_host),
    Stop(3, is_worker),
    Stop(4, is_driver),
    Stop(5, is_worker, saving=SHARD),
    Stop(5, is_driver, saving="data.pt"),
]


def stand_still(runs: Any, run_dir: Path, steps: int) -> SystemFault:
    """A run that nobody touches, and that does nothing any more after so many steps; how it ended."""
    with Stop(steps + 1, None).of(runs, run_dir), pytest.raises(SystemFault) as caught:
        runs.train(run_dir, steps=steps + 1, watchdog_minutes=WATCHDOG_MINUTES, **COMMON)
    return caught.value


@pytest.mark.parametrize(
    "stops", [pytest.param(TWO_KILLS, id="two"), pytest.param(FIVE_KILLS, id="five", marks=pytest.mark.nightly)]
)
def test_killed_and_resumed_it_is_the_same_training(
    stops: list[Stop], small_runs: Any, trained: Any, tmp_path: Path
) -> None:
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    last_step = stops[-1].step
    settings = {"steps": last_step, "watchdog_minutes": 10.0} | COMMON
    with ThreadPoolExecutor(1) as beside:
        still = beside.submit(stand_still, small_runs, alone, last_step)
        for stop in stops:
            with stop.of(small_runs, stopped) as killed:
                began = time.monotonic()
                with pytest.raises(SystemFault) as caught:
                    small_runs.train(stopped, **settings)
                ended = time.monotonic()
                held = (TrainPaths.of(stopped).plan / f"hold-{stop.step}").exists()
            assert killed, f"the run ended before it was killed: {caught.value}"
            print(f"\n{stop}: ended {ended - killed[0]:.1f} s after the kill, {ended - began:.0f} s after its start")
            assert held is not bool(stop.saving), "the run did not notice before the episodes of its step were over"
            assert caught.value.kind == "training"
            assert not small_runs.processes(stopped), "processes are left over"
            assert verify.prepare_resume(TrainPaths.of(stopped).checkpoints, 1) == stop.step - 1
        assert (TrainPaths.of(stopped).checkpoints / f"incomplete-global_step_{last_step}").is_dir()
        began = time.monotonic()
        last = small_runs.train(stopped, **settings)
        print(f"\nthe last start took {time.monotonic() - began:.0f} s")
        fault = still.result()
    assert (last.steps, last.resumed_from) == (last_step, last_step - 1)
    assert last.checkpoint.name == f"global_step_{last_step}"
    assert verify.is_verified(last.checkpoint)

    assert f"nothing was finished for {WATCHDOG_MINUTES:g} minutes" in str(fault)
    assert not small_runs.processes(alone), "processes are left over"
    written = [file.read_text() for file in (TrainPaths.of(alone).logs / "stacks").iterdir()]
    assert sum("most recent call first" in text for text in written) >= 3, "driver, host, trainer process"
    assert any("in next_report" in text for text in written)

    steps = range(1, last_step + 1)
    assert starts(alone) == [(step, 1) for step in steps]
    assert starts(stopped) == [(step, 1 + sum(stop.step <= step for stop in stops)) for step in steps]
    difference = trained(alone).difference(trained(stopped))
    print(f"greatest differences: {difference}")
    assert not any(difference.values()), difference

    again = small_runs.train(stopped, **settings)
    assert again.resumed_from == last_step, "a finished run does nothing"
