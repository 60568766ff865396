"""The pieces of confinement: environment, filter program, frames."""

from __future__ import annotations

import struct

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
