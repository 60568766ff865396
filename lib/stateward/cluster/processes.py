"""Processes that end with the one that started them, and nothing of theirs left behind.

Ray's daemons detach themselves, so a process group is not enough to find them again. Linux can make a process the
reaper of all its orphaned descendants; what is still below it at the end is then exactly what it must stop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection, Mapping

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends (Linux ≥ 3.4)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Kill this process when its parent dies. To be called in the child; the parent must be a single-threaded starter
    or wait for the child in the thread that started it, as Linux ties the signal to that thread."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def stop_descendants(patience: float = 5.0, spare: Collection[int] = ()) -> int:
    """Stop everything below this process: SIGTERM, then SIGKILL after `patience` seconds. Returns how many were there.

    Only descendants are touched, found by parentage and never by name. Children with their process id in `spare`, and
    what is below them, are left alone.
    """
    first = _descendants(spare)
    for process in first:
        _signal(process, signal.SIGTERM)
    psutil.wait_procs(first, timeout=patience)
    deadline = time.monotonic() + 30.0
    # Again and again: a dying process may have just started another one.
    while left := [process for process in _descendants(spare) if not _ended(process)]:
        for process in left:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(left, timeout=1.0)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {[p.pid for p in left]} survive SIGKILL; a device or a file system hangs")
    return len(first)


def carrying(variables: Mapping[str, str]) -> list[tuple[psutil.Process, dict[str, str]]]:
    """Processes of this machine that were started with these variables in their environment, with all of it.

    A process that writes its title over its environment, as some of Ray's do, is not among them.
    """
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if variables.items() <= env.items():
            found.append((process, env))
    return found


def _descendants(spare: Collection[int]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        if child.pid not in spare:
            found += [child, *_below(child)]
    return found


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
