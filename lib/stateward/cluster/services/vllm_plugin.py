"""What every vLLM process of ours does first: ask for AMX, and end with the process that started it.

vLLM calls `load` in its API server, engine and workers through the entry point ``vllm.general_plugins``.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import select
import signal
import threading

from stateward.cluster.services.cpu_kernels import allow_amx

#: Environment variable of the processes of a server that `vllm.start` started.
OURS = "STATEWARD_VLLM"


@functools.cache
def load() -> None:
    """vLLM calls this several times in one process."""
    name = multiprocessing.current_process().name
    print(f"stateward: {name}: {'AMX may be used' if allow_amx() else 'no AMX'}", flush=True)
    parent = multiprocessing.parent_process()
    if OURS in os.environ and parent is not None and parent.pid is not None:
        end_with(parent.pid)


def end_with(pid: int) -> None:
    """End this process when process `pid` is gone. vLLM's engine does not notice that its API server was killed, and
    would keep the memory of its GPU."""
    try:
        gone = os.pidfd_open(pid)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_wait, args=(gone,), daemon=True).start()


def _wait(gone: int) -> None:
    select.select([gone], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
