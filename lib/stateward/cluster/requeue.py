"""How a task of an array answers a signal: once, and until the controller has heard it.

Slurm signals every process of a step, and the image's launcher passes on what it gets, so one order may come several
times. submitit would begin its answer anew each time: the second finds the half-written pickle of the first, and the
task fails instead of being put back. And it asks scontrol once, whose connection a busy controller may close.

SIGTERM, which submitit passes over, is an order to stop: Slurm gives it to a task that was cancelled, that somebody
puts back, or that is preempted without a signal of its own. All that the task started ends of it too, so nothing that
runs on would mean anything.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from submitit.core import job_environment

from stateward.cluster import interrupts

#: Seconds between two tries, half a minute in all.
_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


class RequeueOnce(job_environment.SignalHandler):  # type: ignore[misc]
    """submitit's handler, with all three mended."""

    def bypass(self, signum: int, frame: FrameType | None = None) -> None:
        if signum == signal.SIGTERM:
            interrupts.hear(signum, frame)

    def checkpoint_and_try_requeue(self, signum: int, frame: FrameType | None = None) -> None:
        # Ignored, not only passed over: the scontrol that is started next inherits it.
        signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm's answer to the requeue, by which this ends anyway
        self.env._requeue = until_heard(self.env._requeue)
        super().checkpoint_and_try_requeue(signum, frame)


def until_heard(ask: Callable[[int], None]) -> Callable[[int], None]:
    """`ask` again when scontrol failed. A controller that heard it ends the step, and this wait with it."""

    def requeue(countdown: int) -> None:
        for pause in _PAUSES:
            try:
                return ask(countdown)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"not put back yet, again in {pause:g} s: {error}", file=sys.stderr, flush=True)
                time.sleep(pause)
            except FileNotFoundError as error:  # no scontrol on this node; waiting brings none
                print(
                    f"did not put the job back: submit it again, it goes on where it stopped ({error})", file=sys.stderr
                )
                raise SystemExit(1) from error
        return ask(countdown)

    return requeue


def put_back(job: str) -> None:
    """Put a task back that was told to stop while Slurm holds it for running, as in the grace time of a preemption.

    It would count as failed for ending early. One that was cancelled or put back already is left as it is.

    Args:
        job: the task's id as a person types it. Raises CalledProcessError if no controller answers.
    """

    def ask(_: int) -> None:
        ended = {"capture_output": True, "text": True, "timeout": 60, "check": True}
        shown = subprocess.run(["scontrol", "show", "job", job], **ended).stdout  # type: ignore[call-overload]
        if "JobState=RUNNING" in shown:
            subprocess.check_call(["scontrol", "requeue", job], timeout=60)
            print(f"put back: {job}", file=sys.stderr, flush=True)

    until_heard(ask)(0)


def prepare(paths: Any) -> None:
    """Use the handler in this process, and remove what a kill left half-written: submitit takes it for its own.

    Args:
        paths: submitit's `JobPaths` of this task.
    """
    job_environment.SignalHandler = RequeueOnce
    for file in (paths.submitted_pickle, paths.result_pickle):
        Path(f"{file}.save_tmp").unlink(missing_ok=True)
