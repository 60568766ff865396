"""The stacks of every process of a run, for the log of one that hangs.

Each process registers a file and SIGUSR2; the signal makes Python write all its threads' stacks there, also while the
main thread waits in C. SIGUSR1 is left alone: NCCL may catch it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

#: Folder for the files; set for every process of a run (`plan.worker_environment`).
LOGS = "STATEWARD_TRAIN_LOGS"
_SIGNAL = signal.SIGUSR2
_PATIENCE_SECONDS = 60.0
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


def request_everywhere(hosts: Sequence[Any], folder: Path) -> str:
    """Ask the processes of this node, and of every node that has a host; the sentence for the log.

    Args:
        hosts: actors as `host.EpisodeHost`. One that does not answer within a minute takes nothing from the others.
    """
    here = request(folder)
    import ray  # most processes that register need nothing of it here

    asked = [host.request_stacks.remote(str(folder)) for host in hosts]
    answered = ray.wait(asked, num_returns=len(asked), timeout=_PATIENCE_SECONDS)[0] if asked else []
    nodes, silent = {socket.gethostname(): set(here)}, len(asked) - len(answered)
    for answer in answered:
        try:
            node, pids = ray.get(answer)
        except ray.exceptions.RayError as error:
            print(f"stacks: {error}", file=sys.stderr, flush=True)
            silent += 1
        else:
            nodes.setdefault(node, set()).update(pids)
    told = f"{sum(map(len, nodes.values()))} processes of {len(nodes)} nodes wrote their stacks to {folder / 'stacks'}"
    return told + (f" ({silent} of {len(asked)} hosts did not answer)" if silent else "")


def _is_of_this_run(pid: int, folder: Path) -> bool:
    """Whether `pid` is a process with this run's environment: ids are used again, and a stranger must not be hit."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{LOGS}={folder}".encode() in environment


def _command_line() -> list[str]:
    return Path("/proc/self/cmdline").read_text(errors="replace").split("\0")
