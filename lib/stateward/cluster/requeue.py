"""How a task of an array answers submitit's signal: once, and until the controller has heard it.

Slurm signals every process of a step, and the image's launcher passes on what it gets, so one order may come several
times. submitit would begin its answer anew each time: the second finds the half-written pickle of the first, and the
task fails instead of being put back. And it asks scontrol once, whose connection a busy controller may close.
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

#: Seconds between two tries, half a minute in all.
_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


class RequeueOnce(job_environment.SignalHandler):  # type: ignore[misc]
    """submitit's handler, with both mended."""

    def checkpoint_and_try_requeue(self, signum: int, frame: FrameType | None = None) -> None:
        # Ignored, not only passed over: the scontrol that is started next inherits it.
        signal.signal(signum, signal.SIG_IGN)
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


def prepare(paths: Any) -> None:
    """Use the handler in this process, and remove what a kill left half-written: submitit takes it for its own.

    Args:
        paths: submitit's `JobPaths` of this task.
    """
    job_environment.SignalHandler = RequeueOnce
    for file in (paths.submitted_pickle, paths.result_pickle):
        Path(f"{file}.save_tmp").unlink(missing_ok=True)
