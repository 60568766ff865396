"""The pieces of confinement: environment, filter program, frames."""

from __future__ import annotations

import errno
import json
import platform
import struct
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.errors import UserError
from stateward.grading import confine, frames, seccomp

#: A busy machine is not a failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

HEADERS = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none(), max_size=3)


def test_only_what_is_listed_is_in_the_environment() -> None:
    full = {"PATH": "/bin", "API_KEY": "secret", "AWS_SECRET": "secret", "HOME": "/h", "LANG": "C"}
    clean = confine.clean_environment(full)
    assert {name: clean[name] for name in full if name in clean} == {"PATH": "/bin", "LANG": "C"}
    assert "secret" not in clean.values()


@pytest.mark.parametrize(
    ("namespaces", "landlock", "filtered", "text"),
    [
        (("namespace", "ipc", "mount", "pid"), 7, True, "namespace+ipc+mount+pid+landlock7+filter+hook"),
        ((), 0, False, "hook"),
    ],
)
def test_isolation_has_a_text(namespaces: tuple[str, ...], landlock: int, filtered: bool, text: str) -> None:
    assert confine.Isolation(namespaces=namespaces, landlock=landlock, filter=filtered).text == text


def test_layers_are_required_by_name() -> None:
    confine.require_layers(["landlock", "filter"], "namespace+landlock7+filter+hook")
    with pytest.raises(UserError, match="confined by 'landlock'"):
        confine.require_layers(["landlock"], "namespace+filter+hook")
    with pytest.raises(UserError, match="no layer 'landlok'"):
        confine.require_layers(["landlok"], "namespace+landlock7+filter+hook")


def evaluate(program: bytes, *, arch: int, number: int, argument: int | tuple[int, ...] = 0) -> int:
    """A classic BPF interpreter for the instructions that the filter uses."""
    arguments = (*(argument if isinstance(argument, tuple) else (argument,)), *[0] * 6)[:6]
    halves = [
        (16 + 8 * n + 4 * half, value >> 32 * half & 0xFFFFFFFF) for n, value in enumerate(arguments) for half in (0, 1)
    ]
    data = {0: number, 4: arch, **dict(halves)}
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        op, yes, no, value = code[at]
        if op == 0x20:
            accumulator, jump = data[value], 0
        elif op == 0x06:
            return value
        else:
            true = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[op]
            jump = yes if true else no
        at += 1 + jump


ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7


@pytest.mark.parametrize(
    ("machine", "arch", "number", "argument", "action"),
    [
        ("x86_64", X86, 0, 0, ALLOW),  # read
        ("x86_64", X86, 41, 0, EPERM),  # socket
        ("x86_64", X86, 57, 0, EPERM),  # fork
        ("x86_64", X86, 59, 0, EPERM),  # execve
        ("x86_64", X86, 56, 17, EPERM),  # clone of a process
        ("x86_64", X86, 56, 0x3D0F00, ALLOW),  # clone of a thread
        ("x86_64", X86, 435, 0, ENOSYS),  # clone3
        ("x86_64", X86, 62, 99, ALLOW),  # kill oneself
        ("x86_64", X86, 62, 98, EPERM),  # kill another
        ("x86_64", X86, 62, 0xFFFFFFFF, EPERM),  # kill everything
        ("x86_64", X86, 0x40000000 + 41, 0, EPERM),  # the x32 socket
        ("x86_64", 0x40000003, 359, 0, EPERM),  # a 32-bit call
        ("x86_64", X86, 302, (0, 7), ALLOW),  # prlimit64 of oneself
        ("x86_64", X86, 302, (99, 7), ALLOW),  # by number
        ("x86_64", X86, 302, (98, 7), EPERM),  # of another
        ("x86_64", X86, 72, (3, 1), ALLOW),  # fcntl F_GETFD
        ("x86_64", X86, 72, (3, 4, 0o4000), ALLOW),  # F_SETFL O_NONBLOCK
        ("x86_64", X86, 72, (3, 4, 0o24000), EPERM),  # F_SETFL with O_ASYNC
        ("x86_64", X86, 72, (3, 8, 98), EPERM),  # F_SETOWN
        ("x86_64", X86, 72, (3, 10, 9), EPERM),  # F_SETSIG
        ("x86_64", X86, 72, (3, 15, 1), EPERM),  # F_SETOWN_EX
        ("x86_64", X86, 16, (3, 0x5401), ALLOW),  # ioctl TCGETS
        ("x86_64", X86, 16, (3, 0x8901), EPERM),  # FIOSETOWN
        ("x86_64", X86, 44, (3, 1, 1, 0, 0, 0), ALLOW),  # send
        ("x86_64", X86, 44, (3, 1, 1, 0, 1, 110), EPERM),  # sendto an address
        ("x86_64", X86, 44, (3, 1, 1, 0, 1 << 32, 110), EPERM),  # whose low half is 0
        ("x86_64", X86, 53, (1, 1 | 0o2000000), ALLOW),  # socketpair of streams
        ("x86_64", X86, 53, (1, 2), EPERM),  # of datagrams
        ("x86_64", X86, 53, (1, 5), EPERM),  # of packets
        ("x86_64", X86, 53, (2, 1), EPERM),  # of the network
        ("x86_64", X86, 257, (0, 1, 1), ALLOW),  # openat for writing: Landlock's
        ("x86_64", X86, 87, 1, EPERM),  # unlink
        ("aarch64", ARM, 261, (98, 7), EPERM),  # prlimit64
        ("aarch64", ARM, 25, (3, 8, 98), EPERM),  # fcntl F_SETOWN
        ("aarch64", ARM, 206, (3, 1, 1, 0, 1, 110), EPERM),  # sendto
        ("aarch64", ARM, 199, (1, 2), EPERM),  # socketpair
        ("aarch64", ARM, 29, (3, 0x5452), EPERM),  # ioctl FIOASYNC
        ("aarch64", ARM, 63, 0, ALLOW),  # read
        ("aarch64", ARM, 198, 0, EPERM),  # socket
        ("aarch64", ARM, 220, 17, EPERM),  # clone of a process
        ("aarch64", ARM, 220, 0x3D0F00, ALLOW),  # clone of a thread
        ("aarch64", ARM, 129, 98, EPERM),  # kill another
    ],
)
def test_the_filter(machine: str, arch: int, number: int, argument: int | tuple[int, ...], action: int) -> None:
    assert evaluate(seccomp.program(machine, 99), arch=arch, number=number, argument=argument) == action


#: What a check must not call in any mode, with the kernel's numbers: arch/x86/entry/syscalls/syscall_64.tbl for x86_64,
#: and include/uapi/asm-generic/unistd.h for aarch64, which starts every process with clone.
FORBIDDEN = {
    # programs and processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # the network, and calls that a filter of calls does not see
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    # other processes: their memory, their files, signals to them
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    # other namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
}
NUMBERS = {
    machine: {name: numbers[column] for name, numbers in FORBIDDEN.items() if numbers[column] is not None}
    for column, machine in enumerate(("x86_64", "aarch64"))
}


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", X86), ("aarch64", ARM)])
def test_every_forbidden_call_is_refused_and_every_other_one_is_not(machine: str, arch: int) -> None:
    program = seccomp.program(machine, 99)
    special = {"x86_64": {56, 62, 234}, "aarch64": {220, 129, 131}}[machine] | {435}  # clone, kill, tgkill; clone3
    special |= set(seccomp._PARTLY[machine].values())
    refused = {n for n in range(600) if evaluate(program, arch=arch, number=n, argument=99) != ALLOW}
    table = seccomp._MACHINES[machine][1]
    assert refused - special == set(table.values())
    assert all(evaluate(program, arch=arch, number=n) == EPERM for n in table.values())
    assert NUMBERS[machine].items() <= table.items()


#: Each call in a process with the filter. The arguments make a call fail otherwise too, in another way, or do nothing.
TRY = """
import ctypes, json, os, sys
from stateward.grading import seccomp
libc = ctypes.CDLL(None, use_errno=True)
arguments = {"ptrace": (0xFFFF, -1), "setns": (-1, 0), "socket": (1, 1, 0), "tkill": (-1, 0)}
numbers, me, found = json.loads(sys.argv[1]), os.getpid(), {}
print(seccomp.install(), flush=True)
for name, number in numbers.items():
    ctypes.set_errno(0)
    answer = libc.syscall(number, *arguments.get(name, (0, 0, 0, 0, 0, 0)))
    if os.getpid() != me:
        os._exit(0)  # a fork that was not refused
    found[name] = (answer, ctypes.get_errno())
print(json.dumps(found))
"""


@pytest.mark.skipif(platform.machine() not in NUMBERS, reason="the filter does not know this machine's calls")
def test_the_kernel_refuses_every_forbidden_call() -> None:
    """A site's own filter may refuse some of them as well; that the program refuses each is the test above."""
    numbers = {
        name: number for name, number in NUMBERS[platform.machine()].items() if name != "vfork"
    }  # shares a stack
    done = subprocess.run([sys.executable, "-c", TRY, json.dumps(numbers)], capture_output=True, text=True, check=True)
    installed, found = done.stdout.splitlines()
    if installed != "True":
        pytest.skip("this kernel has no system call filter")
    assert json.loads(found) == {name: [-1, errno.EPERM] for name in numbers}


@pytest.mark.parametrize(
    ("flags", "action"), [(0, ALLOW), (0o2000000, ALLOW), (1, EPERM), (2, EPERM), (0o100, EPERM), (0o1000, EPERM)]
)
def test_without_landlock_the_filter_refuses_to_open_for_writing(flags: int, action: int) -> None:
    x86 = seccomp.program("x86_64", 99, no_writes=True)
    assert evaluate(x86, arch=X86, number=2, argument=(1, flags)) == action
    assert evaluate(x86, arch=X86, number=257, argument=(3, 1, flags)) == action
    arm = seccomp.program("aarch64", 99, no_writes=True)
    assert evaluate(arm, arch=ARM, number=56, argument=(3, 1, flags)) == action


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(KeyError):
        seccomp.program("riscv64", 1)


@UNHURRIED
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=4), st.integers(1, 7))
def test_frames_survive_any_cut(messages: list[tuple[dict, bytes]], size: int) -> None:
    stream = b"".join(frames.pack(header, body) for header, body in messages)
    buffer = frames.Buffer()
    got = [m for start in range(0, len(stream), size) for m in buffer.feed(stream[start : start + size])]
    assert got == messages
    assert len(buffer) == 0
