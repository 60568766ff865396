"""What keeps a check from secrets, the network, other processes and the machine's memory.

Three layers, each where the machine allows it; `Isolation.text` says which are in force and goes into every grade:

* ``namespace``: the warm grader moves itself once into its own user and network namespace, in which there is no
  network; its children inherit it for nothing.
* ``filter``: a system call filter (`stateward.grading.seccomp`) refuses sockets, processes and foreign signals.
* ``hook``: a Python audit hook refuses the same with an error that says why. It is always there and is no wall
  against code that means to get round it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateward.grading import seccomp

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_LIBC = ctypes.CDLL(None, use_errno=True)

#: The environment that a check sees; everything else is a possible secret.
ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PYTHONNOUSERSITE",
    "THINKINGBOX_DATA",
)


class NotAllowedInCheck(RuntimeError):
    """A check tried something that a check must not do."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """Which layers are in force."""

    namespace: bool
    filter: bool

    @property
    def text(self) -> str:
        layers = ["namespace"] * self.namespace + ["filter"] * self.filter + ["hook"]
        return "+".join(layers)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `environment` that a check may see, for the warm grader to start with."""
    kept = {name: environment[name] for name in ENVIRONMENT if name in environment}
    # The C library reserves 128 MB of address space for every thread's own heap, which a check's memory limit counts.
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "2"}


def enter_namespace() -> bool:
    """Move this process, which must have one thread, into a namespace without network. False where refused."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        # Where a site refuses the maps, user and group have no name in here, which changes nothing that a check may do.
        with contextlib.suppress(PermissionError), open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def drop_capabilities() -> None:
    """Give up every capability, so that a grader that runs as root cannot look into other processes."""
    header = struct.pack("=II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _LIBC.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that none escapes it."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine(*, memory_bytes: int, cpu_seconds: float, parent: int) -> bool:
    """Limit this freshly forked process for good. Returns whether the system call filter is in force."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the grader died before the line above
    limits = {
        resource.RLIMIT_AS: _address_space() + memory_bytes,
        resource.RLIMIT_CPU: max(1, int(cpu_seconds + 1)),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,  # a check leaves no file behind
        resource.RLIMIT_NOFILE: 256,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    return seccomp.install()


def filter_works() -> bool:
    """Whether the system call filter can be installed here and does refuse a socket, tried in a child."""
    pid = os.fork()
    if pid == 0:
        refused = False
        if seccomp.install():
            try:
                socket.socket().close()
            except PermissionError:
                refused = True
        os._exit(0 if refused else 1)
    return os.waitpid(pid, 0)[1] == 0


def kill_orphans(keep: set[int]) -> int:
    """Kill every child of this process that is not in `keep`, and what their deaths leave to it. Returns how many.

    Needed where no filter keeps a check from starting processes: these can leave its process group.
    """
    killed = 0
    while True:
        found = [pid for pid in _children(os.getpid()) if pid not in keep]
        if not found:
            return killed
        for pid in found:
            os.kill(pid, signal.SIGKILL)  # a child of ours stays at least a zombie until we wait for it
        for pid in found:
            os.waitpid(pid, 0)
        killed += len(found)


def _children(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


_REFUSED = {
    "socket.__new__": "open a network connection",
    "socket.connect": "open a network connection",
    "socket.getaddrinfo": "look up a network name",
    "socket.gethostbyname": "look up a network name",
    "os.fork": "start a process",
    "os.forkpty": "start a process",
    "os.posix_spawn": "start a process",
    "os.exec": "start a program",
    "os.system": "start a program",
    "subprocess.Popen": "start a program",
}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.__new__" and arguments[1] == socket.AF_UNIX:
        return  # an event loop's own pair
    if event in _REFUSED:
        raise NotAllowedInCheck(
            f"a check may not {_REFUSED[event]}: all evidence is in x, and the judge is reached through `judge`"
        )
    if event == "open" and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        if path.startswith("/proc/") and not path.startswith(("/proc/self/", f"/proc/{os.getpid()}/")):
            raise NotAllowedInCheck("a check may not look into other processes")


def install_hook() -> None:
    """Refuse sockets, processes and other processes' files with a clear error, from now on."""
    sys.addaudithook(_hook)
