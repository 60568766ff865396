"""Landlock for checks: read Python and the dataset, write nothing, and no network where the kernel's version has it.

System calls and constants after Linux include/uapi/linux/landlock.h and Documentation/userspace-api/landlock.rst.
Needs no privilege. What a version of the kernel adds is used from that version on (`abi`).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
#: ABI → how many rights of files it knows: REFER since 2, TRUNCATE since 3, IOCTL_DEV since 5.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NETWORK = 0b11  # bind and connect of TCP, since ABI 4
_SCOPES = 0b11  # abstract Unix sockets and signals, since ABI 6

#: From this ABI on no file can be opened for writing or be cut (`O_TRUNC`); before it the filter has to see to that.
NO_WRITES_ABI = 3

#: What the C library and Python read besides their own folders.
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/nsswitch.conf",
    "/sys/devices/system",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)

_LIBC = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's version of Landlock; 0 where it has none or does not use it."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def readable(environment: Iterable[str] = ("THINKINGBOX_DATA", "LD_LIBRARY_PATH")) -> list[str]:
    """The files and folders that a check may read: Python's, the system's libraries, and those that these variables
    name. Folders inside others of the list are left out."""
    named = [path for name in environment for path in os.environ.get(name, "").split(":") if path]
    with open("/proc/self/maps") as file:  # libraries of Python may be anywhere
        mapped = {os.path.dirname(line.split(maxsplit=5)[5].strip()) for line in file if "/" in line}
    found = {os.path.realpath(path) for path in (*_SYSTEM[:3], *sys.path, sys.prefix, sys.base_prefix, *mapped, *named)}
    found = {path for path in found if path != "/" and not path.startswith("/dev") and os.path.exists(path)}
    inside = {path for path in found if any(path.startswith(other + "/") for other in found)}
    return [*sorted(found - inside), *(path for path in _SYSTEM[3:] if os.path.exists(path))]


def ruleset(paths: Iterable[str], version: int) -> int:
    """A descriptor of the rules: `paths` can be read, and the null device written. For any number of `restrict`s.

    Raises:
        OSError: the kernel refuses the rules.
    """
    handled = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    # As long as this version's structure: an older kernel refuses a longer one.
    fields = [handled, *([_NETWORK] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    made = int(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    if made < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for path in paths:
        _allow(made, path, _READ_FILE | _READ_DIR)
    _allow(made, os.devnull, _READ_FILE | _WRITE_FILE)
    return made


def restrict(rules: int) -> None:
    """Confine this process and its later children to `rules` for good, and close them here. OSError where refused."""
    refused = _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _LIBC.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)
    if refused:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def _allow(rules: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= ~_READ_DIR  # a right of folders alone
        rule = struct.pack("=Qi", rights, fd)
        if _LIBC.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(fd)
