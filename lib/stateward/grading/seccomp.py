"""A system call filter for checks: no sockets, no new processes or programs, no signals to others.

Classic BPF after Linux Documentation/userspace-api/seccomp_filter.rst. Threads stay possible. Needs no privilege.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

# Offsets in struct seccomp_data; the low half of the first argument comes first on these little-endian machines.
_NR, _ARCH, _ARG0 = 0, 4, 16
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_CLONE_THREAD = 0x10000
_X32 = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2

#: Machine → (audit architecture, calls that are refused, calls that may only name the caller's own process, clone).
#: Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.
_MACHINES: dict[str, tuple[int, dict[str, int], dict[str, int], int]] = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41,
            "fork": 57,
            "vfork": 58,
            "execve": 59,
            "ptrace": 101,
            "rt_sigqueueinfo": 129,
            "tkill": 200,
            "unshare": 272,
            "rt_tgsigqueueinfo": 297,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "execveat": 322,
            "pidfd_send_signal": 424,
            "io_uring_setup": 425,
            "pidfd_getfd": 438,
        },
        {"kill": 62, "tgkill": 234},
        56,
    ),
    "aarch64": (
        0xC00000B7,
        {
            "unshare": 97,
            "ptrace": 117,
            "tkill": 130,
            "rt_sigqueueinfo": 138,
            "socket": 198,
            "execve": 221,
            "rt_tgsigqueueinfo": 240,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "execveat": 281,
            "pidfd_send_signal": 424,
            "io_uring_setup": 425,
            "pidfd_getfd": 438,
        },
        {"kill": 129, "tgkill": 131},
        220,
    ),
}
_CLONE3 = 435


def program(machine: str, pid: int) -> bytes:
    """The filter for process `pid` on `machine`; KeyError where the machine's calls are not known here."""
    arch, refused, own, clone = _MACHINES[machine]
    deny = (_RET, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RET, 0, 0, _ALLOW)
    code = [(_LD, 0, 0, _ARCH), (_JEQ, 1, 0, arch), deny, (_LD, 0, 0, _NR)]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), deny]  # the x32 calls have numbers of their own
    for number in refused.values():
        code += [(_JEQ, 0, 1, number), deny]
    # The C library asks for clone3 first, whose flags a filter cannot see, and falls back to clone.
    code += [(_JEQ, 0, 1, _CLONE3), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [(_JEQ, 0, 4, clone), (_LD, 0, 0, _ARG0), (_JSET, 0, 1, _CLONE_THREAD), allow, deny]
    for number in own.values():
        code += [(_JEQ, 0, 4, number), (_LD, 0, 0, _ARG0), (_JEQ, 0, 1, pid), allow, deny]
    code.append(allow)
    return b"".join(struct.pack("=HBBI", *line) for line in code)


#: Loaded before the fork, not in every child.
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> bool:
    """Filter this process from now on. False where the machine or the kernel has no such filter."""
    try:
        code = program(os.uname().machine, os.getpid())
    except KeyError:
        return False
    compiled = _Program(len(code) // 8, code)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return bool(_LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(compiled), 0, 0) == 0)
