"""What keeps a check from secrets, files, the network, other processes and the machine's memory.

Several layers, each where the machine allows it; docs/security.md says what each is good for. `Isolation.text` names
those in force and goes into every grade:

* ``namespace``, ``ipc``, ``mount``, ``pid``: see `stateward.grading.namespaces`.
* ``landlock`` with the kernel's version of it: see `stateward.grading.landlock`.
* ``filter``: a system call filter, see `stateward.grading.seccomp`.
* ``hook``: a Python audit hook refuses the same with an error that says why. It is always there and is no wall
  against code that means to get round it.

Besides, neither the warm grader nor a check is dumpable (`hide`): no process of the same user may open their memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stateward.errors import UserError, nearest
from stateward.grading import landlock, namespaces, seccomp

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36

_LIBC = ctypes.CDLL(None, use_errno=True)

#: Every layer, strongest first in what it keeps away from other users' and tasks' data.
LAYERS = ("namespace", "ipc", "mount", "pid", "landlock", "filter", "hook")

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
    """Which layers are in force.

    Attributes:
        namespaces: of `stateward.grading.namespaces.enter`. landlock: its ABI, 0 without it. filter: system calls.
    """

    namespaces: tuple[str, ...]
    landlock: int
    filter: bool

    @property
    def text(self) -> str:
        layers = [*self.namespaces, *([f"landlock{self.landlock}"] if self.landlock else []), *["filter"] * self.filter]
        return "+".join([*layers, "hook"])


@dataclass(frozen=True, kw_only=True)
class Walls:
    """What a check's process needs to confine itself: the layers, and Landlock's rules as a descriptor, if any."""

    isolation: Isolation
    rules: int | None


def build_walls() -> Walls:
    """Find the layers that work here, and move this process, which must have one thread, behind those of its own."""
    paths = landlock.readable()  # before this process' own part of /proc is out of its sight
    filtered = filter_works()
    # Without the filter a check's processes are found through /proc, which `pid` would change.
    spaces = namespaces.enter(pid=filtered)
    hide()  # after the namespace: its maps can be written by a dumpable process alone
    drop_capabilities()
    adopt_orphans()
    version = landlock.abi()
    if "pid" in spaces and not os.path.exists("/proc/self"):  # we are not in this /proc: it is that of the checks alone
        paths.append("/proc")
    rules = landlock.ruleset(paths, version) if version else None
    return Walls(isolation=Isolation(namespaces=spaces, landlock=version, filter=filtered), rules=rules)


def layers(isolation: str) -> set[str]:
    """The names of `LAYERS` in an `Isolation.text`."""
    return {layer.rstrip("0123456789") for layer in isolation.split("+")}


def require_layers(required: Iterable[str], isolation: str) -> None:
    """Refuse to grade with fewer layers than a site wants.

    Raises:
        UserError: one of `required` is no layer, or is not among those of an `Isolation.text`.
    """
    there = layers(isolation)
    for layer in required:
        if layer not in LAYERS:
            raise UserError(f"episode.grade.require: there is no layer {layer!r}", do=nearest(layer, LAYERS))
        if layer not in there:
            raise UserError(
                f"checks cannot be confined by {layer!r} on this machine",
                f"episode.grade.require asks for it, and in force are {', '.join(isolation.split('+'))}",
                "use a node whose kernel allows it (docs/security.md), or take it out of episode.grade.require",
            )


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `environment` that a check may see, for the warm grader to start with."""
    kept = {name: environment[name] for name in ENVIRONMENT if name in environment}
    # The C library reserves 128 MB of address space for every thread's own heap, which a check's memory limit counts.
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "2"}


def hide() -> None:
    """Make this process not dumpable: of its user's other processes, none may look into it or attach to it (ptrace(2)).

    A program that it starts is dumpable again. The files of ``/proc/self`` that only the owner may read are root's.
    """
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every capability, so that a grader that runs as root cannot look into other processes."""
    header = struct.pack("=II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _LIBC.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that none escapes it."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine(*, memory_bytes: int, cpu_seconds: float, parent: int, walls: Walls) -> None:
    """Limit this freshly forked process for good.

    Args:
        parent: what this process sees as its parent's id while that lives; 0 when that is outside of its process ids.
        walls: the layers that were found to work.

    Raises:
        OSError: one of them cannot be set up.
    """
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
    if walls.rules is not None:
        landlock.restrict(walls.rules)
    if walls.isolation.filter and not seccomp.install(no_writes=walls.isolation.landlock < landlock.NO_WRITES_ABI):
        raise OSError(ctypes.get_errno(), "the system call filter cannot be installed")


def filter_works() -> bool:
    """Whether the system call filter can be installed here and does refuse a socket, tried in a child."""
    seccomp.prepare()
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
    **dict.fromkeys(("os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate"), "change a file"),
    **dict.fromkeys(("os.mkdir", "os.chmod", "os.chown", "os.utime", "os.setxattr"), "change a file"),
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


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.__new__" and arguments[1] == socket.AF_UNIX:
        return  # an event loop's own pair
    if event in _REFUSED:
        raise NotAllowedInCheck(
            f"a check may not {_REFUSED[event]}: all evidence is in x, and the judge is reached through `judge`"
        )
    if event == "open" and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        if arguments[2] & _WRITING and path != os.devnull:
            raise NotAllowedInCheck(f"a check may not write the file {path}: what it leaves is its verdict")
        if path.startswith("/proc/") and not path.startswith(("/proc/self/", f"/proc/{os.getpid()}/")):
            raise NotAllowedInCheck("a check may not look into other processes")


def install_hook() -> None:
    """Refuse sockets, processes and other processes' files with a clear error, from now on."""
    sys.addaudithook(_hook)
