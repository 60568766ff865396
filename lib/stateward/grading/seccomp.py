"""A system call filter for checks: no sockets, no processes or programs, no signals to others, no changes to files.

Classic BPF after Linux Documentation/userspace-api/seccomp_filter.rst. Threads stay possible. Needs no privilege.
A filter sees numbers and not what a pointer points to, so a call with its flags in memory is refused as a whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import socket
import struct

# Offsets in struct seccomp_data; the low half of an argument comes first on these little-endian machines.
_NR, _ARCH, _ARG0 = 0, 4, 16
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_CLONE_THREAD = 0x10000
_X32 = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def _calls(text: str) -> dict[str, int]:
    """``name number`` pairs, separated by commas."""
    return {name: int(number) for name, number in (pair.split() for pair in text.split(","))}


#: Machine → (audit architecture, calls that are refused, calls that may only name the caller's own process, clone).
#: Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.
_MACHINES: dict[str, tuple[int, dict[str, int], dict[str, int], int]] = {
    "x86_64": (
        0xC000003E,
        _calls(
            """
            socket 41, fork 57, vfork 58, execve 59, ptrace 101, rt_sigqueueinfo 129, tkill 200, unshare 272,
            rt_tgsigqueueinfo 297, setns 308, process_vm_readv 310, process_vm_writev 311, execveat 322,
            pidfd_send_signal 424, io_uring_setup 425, pidfd_getfd 438, connect 42, bind 49, listen 50,
            accept 43, accept4 288, sendmsg 46, sendmmsg 307, pidfd_open 434, process_madvise 440, kcmp 312,
            perf_event_open 298, bpf 321, userfaultfd 323, mount 165, umount2 166, move_mount 429, fsopen 430,
            open_tree 428, mount_setattr 442, pivot_root 155, chroot 161, open_by_handle_at 304, keyctl 250,
            add_key 248, request_key 249, shmget 29, shmat 30, shmctl 31, semget 64, semop 65,
            semctl 66, semtimedop 220, msgget 68, msgsnd 69, msgrcv 70, msgctl 71, mq_open 240, mq_unlink 241,
            memfd_create 319,
            memfd_secret 447, setpriority 141, sched_setparam 142, sched_setscheduler 144, sched_setattr 314,
            sched_setaffinity 203, ioprio_set 251, migrate_pages 256, move_pages 279, openat2 437, creat 85,
            unlink 87, unlinkat 263, rmdir 84, rename 82, renameat 264, renameat2 316, truncate 76,
            ftruncate 77, fallocate 285, mkdir 83, mkdirat 258, mknod 133, mknodat 259, link 86, linkat 265,
            symlink 88, symlinkat 266, chmod 90, fchmod 91, fchmodat 268, fchmodat2 452, chown 92, fchown 93,
            lchown 94, fchownat 260, utime 132, utimes 235, futimesat 261, utimensat 280, setxattr 188,
            lsetxattr 189, fsetxattr 190, setxattrat 463, removexattr 197, lremovexattr 198, fremovexattr 199,
            removexattrat 466, file_setattr 469, flock 73
            """
        ),
        {"kill": 62, "tgkill": 234},
        56,
    ),
    "aarch64": (
        0xC00000B7,
        _calls(
            """
            socket 198, execve 221, ptrace 117, rt_sigqueueinfo 138, tkill 130, unshare 97,
            rt_tgsigqueueinfo 240, setns 268, process_vm_readv 270, process_vm_writev 271, execveat 281,
            pidfd_send_signal 424, io_uring_setup 425, pidfd_getfd 438, connect 203, bind 200, listen 201,
            accept 202, accept4 242, sendmsg 211, sendmmsg 269, pidfd_open 434, process_madvise 440, kcmp 272,
            perf_event_open 241, bpf 280, userfaultfd 282, mount 40, umount2 39, move_mount 429, fsopen 430,
            open_tree 428, mount_setattr 442, pivot_root 41, chroot 51, open_by_handle_at 265, keyctl 219, add_key 217,
            request_key 218, shmget 194, shmctl 195, shmat 196,
            semget 190, semctl 191, semtimedop 192, semop 193, msgget 186, msgctl 187, msgrcv 188, msgsnd 189,
            mq_open 180, mq_unlink 181, memfd_create 279,
            memfd_secret 447, setpriority 140, sched_setparam 118, sched_setscheduler 119, sched_setattr 274,
            sched_setaffinity 122, ioprio_set 30, migrate_pages 238, move_pages 239, openat2 437, unlinkat 35,
            renameat 38, renameat2 276, truncate 45, ftruncate 46, fallocate 47, mkdirat 34, mknodat 33,
            linkat 37, symlinkat 36, fchmod 52, fchmodat 53, fchmodat2 452, fchown 55, fchownat 54,
            utimensat 88, setxattr 5, lsetxattr 6, fsetxattr 7, setxattrat 463, removexattr 14,
            lremovexattr 15, fremovexattr 16, removexattrat 466, file_setattr 469, flock 32
            """
        ),
        {"kill": 129, "tgkill": 131},
        220,
    ),
}
_CLONE3 = 435

#: Machine → numbers of the calls of which some arguments are refused.
_PARTLY: dict[str, dict[str, int]] = {
    "x86_64": _calls("fcntl 72, ioctl 16, sendto 44, socketpair 53, prlimit64 302, openat 257, open 2"),
    "aarch64": _calls("fcntl 25, ioctl 29, sendto 206, socketpair 199, prlimit64 261, openat 56"),
}

# Signals by way of a file: F_SETOWN, F_SETSIG, F_SETOWN_EX, and O_ASYNC by F_SETFL. A lease (F_SETLEASE) holds up
# whoever opens the file.
_FCNTL = (8, 10, 15, 1024)
_F_SETFL, _O_ASYNC = 4, 0o20000
#: FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSTI, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR.
_IOCTL = (0x5452, 0x8901, 0x8902, 0x5412, 0x40086602, 0x401C5820)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_SOME_PID = 0x7ABCDEF1  # above every process id (kernel.pid_max), and no other number of the filter

_Line = tuple[int, int, int, int]
_DENY: _Line = (_RET, 0, 0, _ERRNO | errno.EPERM)
_PASS: _Line = (_RET, 0, 0, _ALLOW)


def program(machine: str, pid: int, *, no_writes: bool = False) -> bytes:
    """The filter for process `pid` on `machine`; KeyError where the machine's calls are not known here.

    `no_writes` refuses to open a file for writing too, even the null device; for where Landlock does not.
    """
    return _template(machine, no_writes).replace(struct.pack("=I", _SOME_PID), struct.pack("=I", pid))


@functools.cache
def _template(machine: str, no_writes: bool) -> bytes:
    """The filter for process `_SOME_PID`: made once, as every check needs it with another number in three places."""
    pid = _SOME_PID
    arch, refused, own, clone = _MACHINES[machine]
    partly = _PARTLY[machine]
    code = [(_LD, 0, 0, _ARCH), (_JEQ, 1, 0, arch), _DENY, (_LD, 0, 0, _NR)]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), _DENY]  # the x32 calls have numbers of their own
    for number in refused.values():
        code += [(_JEQ, 0, 1, number), _DENY]
    # The C library asks for clone3 first, whose flags a filter cannot see, and falls back to clone.
    code += [(_JEQ, 0, 1, _CLONE3), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    code += _when(clone, [_argument(0), (_JSET, 0, 1, _CLONE_THREAD), _PASS, _DENY])
    for number in own.values():
        code += _when(number, [_argument(0), (_JEQ, 0, 1, pid), _PASS, _DENY])
    # 0 is the caller too.
    code += _when(partly["prlimit64"], [_argument(0), (_JEQ, 1, 0, 0), (_JEQ, 0, 1, pid), _PASS, _DENY])
    fcntl = [line for command in _FCNTL for line in ((_JEQ, 0, 1, command), _DENY)]
    fcntl += [(_JEQ, 1, 0, _F_SETFL), _PASS, _argument(2), (_JSET, 0, 1, _O_ASYNC), _DENY, _PASS]
    code += _when(partly["fcntl"], [_argument(1), *fcntl])
    ioctl = [line for request in _IOCTL for line in ((_JEQ, 0, 1, request), _DENY)]
    code += _when(partly["ioctl"], [_argument(1), *ioctl, _PASS])
    # An address is a pointer, so both halves of it must be 0. Other than a stream, a pair's end can send to anyone.
    no_address = [line for half in (0, 4) for line in (_argument(4, half), (_JEQ, 1, 0, 0), _DENY)]
    code += _when(partly["sendto"], [*no_address, _PASS])
    stream = [(_JSET, 0, 1, 0xE), _DENY, (_JSET, 0, 1, socket.SOCK_STREAM), _PASS, _DENY]  # 0xF is the type
    local = [_argument(0), (_JEQ, 1, 0, socket.AF_UNIX), _DENY]
    code += _when(partly["socketpair"], [*local, _argument(1), *stream])
    if no_writes:
        for name, position in (("open", 1), ("openat", 2)):
            if name in partly:
                code += _when(partly[name], [_argument(position), (_JSET, 0, 1, _WRITING), _DENY, _PASS])
    code.append(_PASS)
    return b"".join(struct.pack("=HBBI", *line) for line in code)


def _argument(position: int, half: int = 0) -> _Line:
    """Load 32 bits of an argument: the low half, or the high one at `half` = 4."""
    return _LD, 0, 0, _ARG0 + 8 * position + half


def _when(number: int, then: list[_Line]) -> list[_Line]:
    """`then`, which returns, for one system call alone."""
    return [(_JEQ, 0, len(then), number), *then]


#: Loaded before the fork, not in every child.
_LIBC = ctypes.CDLL(None, use_errno=True)


def prepare() -> None:
    """Make the filters of this machine, before a fork, so that `install` need not."""
    with contextlib.suppress(KeyError):
        for no_writes in (False, True):
            _template(os.uname().machine, no_writes)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(*, no_writes: bool = False) -> bool:
    """Filter this process from now on. False where the machine or the kernel has no such filter."""
    try:
        code = program(os.uname().machine, os.getpid(), no_writes=no_writes)
    except KeyError:
        return False
    compiled = _Program(len(code) // 8, code)
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return bool(_LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(compiled), 0, 0) == 0)
