"""What keeps a forked process within bounds and lets it die with its parent (Linux, no privileges needed)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER = 1, 38, 22, 36
_SECCOMP_MODE_FILTER = 2
_libc = ctypes.CDLL(None, use_errno=True)

# linux/audit.h, asm/unistd.h: (AUDIT_ARCH, fork, vfork, clone, clone3); aarch64 has no fork and vfork.
_ARCHITECTURES = {
    "x86_64": (0xC000003E, (57, 58), 56, 435),
    "aarch64": (0xC00000B7, (), 220, 435),
}
_CLONE_THREAD = 0x00010000
_EAGAIN, _ENOSYS = 11, 38


def _prctl(option: int, *arguments: int | ctypes.c_void_p) -> None:
    full = [a if isinstance(a, ctypes.c_void_p) else ctypes.c_ulong(a) for a in arguments]
    full += [ctypes.c_ulong(0)] * (4 - len(full))
    if _libc.prctl(option, *full) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def die_with_parent(parent: int, signal_number: int) -> None:
    """Receive `signal_number` when process `parent` ends; exits at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ended, so that none escapes being reaped."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def limit_resources(memory_mb: int, cpu_seconds: int, file_mb: int) -> None:
    """Bounds of one world.

    Memory is the private writable memory (``RLIMIT_DATA``: heap, anonymous maps, thread stacks); an allocation beyond
    it raises MemoryError. Shared maps are bounded through the address space. CPU time ends with SIGXCPU. A larger file
    than `file_mb` cannot be written.
    """
    mega = 1 << 20
    with open("/proc/self/statm") as f:
        address_space = int(f.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_DATA, memory_mb * mega)
    _lower(resource.RLIMIT_AS, address_space + 2 * memory_mb * mega)
    _lower(resource.RLIMIT_CPU, cpu_seconds)
    _lower(resource.RLIMIT_FSIZE, file_mb * mega)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(which: int, value: int) -> None:
    _soft, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def refuse_processes() -> bool:
    """From here on fork, vfork and clone of a process fail with EAGAIN in this process; threads still work.

    A seccomp filter: ``RLIMIT_NPROC`` counts all processes of the user on the node and does not bind root, and a
    cgroup needs privileges. ``clone3`` hides its flags from a filter, so it reports ENOSYS and the C library falls back
    to ``clone``. False where the kernel or the architecture has no filter.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return False
    arch, forks, clone, clone3 = architecture
    load, jump_eq, jump_set, ret = 0x20, 0x15, 0x45, 0x06
    allow, again, no_call = 0x7FFF0000, 0x00050000 | _EAGAIN, 0x00050000 | _ENOSYS
    rules: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (jump_eq, 1, 0, arch),
        (ret, 0, 0, allow),
        (load, 0, 0, 0),  # seccomp_data.nr
        (jump_eq, 0, 1, clone3),
        (ret, 0, 0, no_call),
    ]
    for number in forks:
        rules += [(jump_eq, 0, 1, number), (ret, 0, 0, again)]
    rules += [
        (jump_eq, 1, 0, clone),
        (ret, 0, 0, allow),
        (load, 0, 0, 16),  # low half of args[0]: the flags of clone
        (jump_set, 0, 1, _CLONE_THREAD),
        (ret, 0, 0, allow),
        (ret, 0, 0, again),
    ]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer)))
    try:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(program)))
    except OSError:
        return False
    return True


def kill_group(group: int) -> None:
    """SIGKILL to a process group; the kernel does this in one step, so a fork bomb inside it cannot outrun it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def kill_adopted(known: set[int]) -> None:
    """SIGKILL the children of this process that are none of `known` and belong to no known one's process group."""
    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        children = [int(pid) for pid in f.read().split()]
    for pid in children:
        if pid in known:
            continue
        try:
            if os.getpgid(pid) not in known:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def become(parent: int, memory_mb: int, cpu_seconds: int, file_mb: int, command: list[str]) -> None:
    """Limit this process, tie its life to `parent`'s, and execute `command` in its place."""
    die_with_parent(parent, signal.SIGKILL)
    limit_resources(memory_mb, cpu_seconds, file_mb)
    os.execvp(command[0], command)
