"""``python -m stateward.cluster.services.vllm_process serve ...``: vLLM's command line, bound to its parent's life.

The parent passes the read end of a pipe. When the parent is gone, however it died, the pipe reports its end and this
process stops as on SIGTERM; an engine never outlives the stage that started it.

vLLM's command line ends with status 0 or 1 when its engine process was killed by a signal. Then this process ends as a
shell would, with 128 + the signal's number, so that the caller can name the signal.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

_GRACE_SECONDS = 20.0  # for an orderly end, before the whole process group is killed
PARENT_PIPE = "STATEWARD_PARENT_PIPE"  # environment variable: number of the inherited file descriptor


def stop_with_parent() -> None:
    """Watch the parent's pipe from a thread. Does nothing if there is none."""
    descriptor = os.environ.pop(PARENT_PIPE, "")
    if descriptor:
        threading.Thread(target=_watch, args=(int(descriptor),), name="parent-watch", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_SECONDS)
    if os.getpgrp() == os.getpid():  # ours alone: the parent starts us as the leader of a new session
        os.killpg(os.getpid(), signal.SIGKILL)


def note_processes() -> list[BaseProcess]:
    """The list of all processes that this one starts through `multiprocessing` from now on."""
    started: list[BaseProcess] = []
    start = BaseProcess.start

    def noted(process: BaseProcess) -> None:
        start(process)
        started.append(process)

    BaseProcess.start = noted  # type: ignore[assignment, method-assign]
    return started


def exit_if_killed(processes: Sequence[BaseProcess]) -> None:
    """End this process with 128 + N if one of `processes` was killed by signal N; SIGTERM is an order to stop."""
    for process in processes:
        number = -(process.exitcode or 0)
        if number > 0 and number != signal.SIGTERM:
            print(f"{process.name} (pid {process.pid}) was killed by {signal.Signals(number).name}", flush=True)
            sys.exit(128 + number)


if __name__ == "__main__":
    stop_with_parent()
    engines = note_processes()
    from vllm.entrypoints.cli.main import main

    try:
        main()
    finally:
        exit_if_killed(engines)
