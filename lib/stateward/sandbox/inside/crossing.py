"""What must not cross a fork: seeing it, and re-making it in the child. docs/tool_servers.md is the contract."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from collections.abc import Iterable
from types import ModuleType
from typing import Any

AFTER_FORK = "__stateward_after_fork__"
BEFORE_FORK = "__stateward_before_fork__"
INIT_IN_CHILD = "__stateward_init_in_child__"
PROCESSES = "__stateward_processes__"


#: How long a thread may take to end after the loop that used it.
_ENDING_SECONDS = 0.3


def has_hook(module: ModuleType) -> bool:
    return callable(getattr(module, AFTER_FORK, None))


def run_hook(module: ModuleType, name: str) -> None:
    """Call a hook if the module has it; what it raises is the server's own fault and propagates."""
    hook = getattr(module, name, None)
    if hook is not None:
        hook()


def reseed() -> None:
    """Give the global generators of this process a state of their own."""
    random.seed()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def threads() -> int:
    """Threads of this process, those of C libraries included, once those that are about to end had time to.

    An SDK may run a synchronous `init` in a worker thread, which ends a moment after its event loop.
    """
    limit = time.monotonic() + _ENDING_SECONDS
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(max(0.0, limit - time.monotonic()))
    while (count := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < limit:
        time.sleep(0.001)  # a joined thread leaves the kernel's list a little later
    return count


def open_sockets(own: Iterable[int]) -> list[int]:
    """Descriptors of sockets but for `own`."""
    mine, found = set(own), []
    for entry in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if link.startswith("socket:") and int(entry) not in mine:
            found.append(int(entry))
    return found


def open_databases() -> int:
    """SQLite connections of this process that are open."""
    sqlite3: Any = sys.modules.get("sqlite3")
    if sqlite3 is None:
        return 0
    count = 0
    for value in gc.get_objects():
        if isinstance(value, sqlite3.Connection):
            try:
                value.total_changes  # noqa: B018 - raises on a closed connection
            except sqlite3.ProgrammingError as error:
                if "closed" in str(error):
                    continue
            count += 1
    return count


def obstacles(module: ModuleType, own_fds: Iterable[int]) -> list[str]:
    """What would cross a fork now and must not; empty if nothing."""
    found = []
    count = threads()
    if count > 1:
        found.append(f"{count - 1} threads besides the main one")
    if has_hook(module):
        return found
    if sockets := open_sockets(own_fds):
        found.append(f"{len(sockets)} open sockets")
    if databases := open_databases():
        found.append(f"{databases} open SQLite connections")
    return found
