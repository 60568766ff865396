"""The stacks of every process of a run, for the log of one that hangs.

Each process registers a file and SIGUSR2; the signal makes Python write all its threads' stacks there, also while the
main thread waits in C. SIGUSR1 is left alone: NCCL may catch it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from pathlib import Path
from typing import TextIO

#: Folder for the files; set for every process of a run (`plan.worker_environment`).
LOGS = "STATEWARD_TRAIN_LOGS"
_SIGNAL = signal.SIGUSR2
_open_files: list[TextIO] = []


def register() -> None:
    """Be ready to write this process's stacks. Does nothing outside a run, and only opens the file when asked."""
    folder = os.environ.get(LOGS)
    if not folder:
        return
    path = Path(folder) / "stacks" / f"{socket.gethostname()}-{os.getpid()}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w")  # noqa: SIM115 - faulthandler keeps the descriptor for the process's life
    file.write(f"{' '.join(_command_line())}\n")
    file.flush()
    _open_files.append(file)
    faulthandler.register(_SIGNAL, file=file, all_threads=True, chain=False)


def request(folder: Path) -> list[int]:
    """Ask every registered process of this node that still lives; their ids. Called on each node of a run."""
    asked = []
    for path in (folder / "stacks").glob(f"{socket.gethostname()}-*.txt"):
        pid = int(path.stem.rsplit("-", 1)[1])
        if _is_of_this_run(pid, folder):
            os.kill(pid, _SIGNAL)
            asked.append(pid)
    return sorted(asked)


def _is_of_this_run(pid: int, folder: Path) -> bool:
    """Whether `pid` is a process with this run's environment: ids are used again, and a stranger must not be hit."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{LOGS}={folder}".encode() in environment


def _command_line() -> list[str]:
    return Path("/proc/self/cmdline").read_text(errors="replace").split("\0")
