"""A run that stands still ends by itself, so that its job is put back and resumes.

A communicator that waits for a dead peer, a tool server that never answers and a file system that hangs look alike from
outside: nothing is finished any more. The watchdog is a thread, because the main thread is what hangs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from stateward.config import Config
from stateward.errors import SystemFault, UserError

#: Carries the news to the main thread. USR1 is left alone (NCCL may catch it), USR2 writes stacks, ALRM is pytest's.
_SIGNAL = signal.SIGRTMIN
#: How long the main thread may take to end the run once it was told; then the process is ended for it.
GRACE_SECONDS = 180.0
#: Exit status of a process whose main thread could not be told.
STATUS = 70


def check_patience(config: Config) -> None:
    """The last episode of a step may take all its time, and nothing else is finished meanwhile.

    Raises:
        UserError: the run would be ended for it; again after every resume, which has the same episode.
    """
    minutes, longest = config.train.watchdog_minutes, config.episode.max_seconds
    if 60 * minutes <= longest:
        raise UserError(
            f"train.watchdog_minutes={minutes:g} with episode.max_seconds={longest:g}",
            "a run whose last episode takes its time would be ended as one that stands still",
            f"set train.watchdog_minutes to more than {longest / 60:g}, or episode.max_seconds lower",
        )


class Watchdog:
    """Ends the block that it guards when `touch` was not called for `seconds`, and then the process with it.

    Args:
        report: called first, in the watchdog's thread; what it returns goes into the text of the fault.
        grace_seconds: a process that has not ended by then is ended, with status `STATUS` and its stacks on standard
            error; also when the block was left.

    Raises:
        SystemFault: in the main thread, wherever it stands, which must be inside the block.
    """

    def __init__(self, seconds: float, report: Callable[[], str], grace_seconds: float = GRACE_SECONDS) -> None:
        self._seconds, self._report, self._grace = seconds, report, grace_seconds
        self._over = threading.Event()
        self._last = time.monotonic()
        self._text = ""

    def touch(self) -> None:
        """Something was finished."""
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        self.touch()
        self._before = signal.signal(_SIGNAL, self._raise)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        signal.signal(_SIGNAL, self._before)

    def _watch(self) -> None:
        while (left := self._last + self._seconds - time.monotonic()) > 0:
            if self._over.wait(left):
                return
        self._text = f"nothing was finished for {self._seconds / 60:g} minutes; {self._report()}"
        print(f"watchdog: {self._text}", file=sys.stderr, flush=True)
        if self._over.is_set():  # it came to its end meanwhile
            return
        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
        # Leaving the block is not enough: stopping engines may hang just as well. This thread ends with the process.
        threading.Event().wait(self._grace)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(STATUS)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise SystemFault("training", self._text)
