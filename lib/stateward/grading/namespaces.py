"""Namespaces of the warm grader, which its children inherit: user, network, IPC, mount and process ids.

Entered once, by a process with one thread. What a machine refuses is left out; `enter` says what is in force.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_MOUNT_SETATTR = 442  # Linux 5.12; the same number on every machine
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY, _NO_SUID = 0x1, 0x2  # MOUNT_ATTR_*
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_PR_SET_NAME = 15

#: What `ps` shows for the first process of the children's process ids. It only waits for the grader's end.
INIT_NAME = b"grader-init"

_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(*, pid: bool) -> tuple[str, ...]:
    """Move this process, which must have one thread, into namespaces of its own. Returns the layers that are in force.

    ``namespace`` (user and network; nothing without it), ``ipc``, ``mount`` (every file system is read-only), and
    ``pid`` (children see and signal no process but each other). With `pid` this process itself stays outside of its
    children's ids, and its own ``/proc`` shows theirs.
    """
    uid, gid = os.getuid(), os.getgid()
    more = _NEWIPC | _NEWNS | (_NEWPID if pid else 0)
    if _LIBC.unshare(_NEWUSER | _NEWNET | more) != 0:  # all or nothing; a site may limit any of them
        if _LIBC.unshare(_NEWUSER | _NEWNET) != 0:
            return ()
        more = 0
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        # Where a site refuses the maps, user and group have no name in here, which changes nothing that a check may do.
        with contextlib.suppress(PermissionError), open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    layers = ["namespace"]
    if more:
        layers.append("ipc")
        if _make_read_only():
            layers.append("mount")
        if pid:
            _start_init()
            layers.append("pid")
    return tuple(layers)


def _make_read_only() -> bool:
    attributes = struct.pack("=4Q", _READ_ONLY | _NO_SUID, 0, 0, 0)
    done = _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes)))
    return bool(done == 0)


def _start_init() -> None:
    """Fork the first process of the new process ids. When it ends the kernel ends all others, so it ends with us."""
    waits, held = os.pipe()
    ready, tell = os.pipe()
    if os.fork() == 0:
        try:
            os.close(held)
            os.setsid()
            _LIBC.prctl(_PR_SET_NAME, INIT_NAME, 0, 0, 0)
            # Only a member can mount what shows these ids alone. Where that is refused, /proc shows all as before.
            _LIBC.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
            os.write(tell, b".")
            os.read(waits, 1)  # until the grader, whatever ends it, is gone
        finally:
            os._exit(0)
    os.close(waits)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
