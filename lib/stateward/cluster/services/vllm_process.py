"""``python -m stateward.cluster.services.vllm_process serve ...``: vLLM's command line, bound to its parent's life.

The parent passes the read end of a pipe. When the parent is gone, however it died, the pipe reports its end and this
process stops as on SIGTERM; an engine never outlives the stage that started it.
"""

from __future__ import annotations

import os
import signal
import threading

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


if __name__ == "__main__":
    stop_with_parent()
    from vllm.entrypoints.cli.main import main

    main()
