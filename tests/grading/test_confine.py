"""The pieces of confinement: environment, filter program, frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    ("namespace", "filtered", "text"), [(True, True, "namespace+filter+hook"), (False, False, "hook")]
)
def test_isolation_has_a_text(namespace: bool, filtered: bool, text: str) -> None:
    assert confine.Isolation(namespace=namespace, filter=filtered).text == text


def evaluate(program: bytes, *, arch: int, number: int, argument: int = 0) -> int:
    """A classic BPF interpreter for the instructions that the filter uses."""
    data = {0: number, 4: arch, 16: argument}
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
        ("aarch64", ARM, 63, 0, ALLOW),  # read
        ("aarch64", ARM, 198, 0, EPERM),  # socket
        ("aarch64", ARM, 220, 17, EPERM),  # clone of a process
        ("aarch64", ARM, 220, 0x3D0F00, ALLOW),  # clone of a thread
        ("aarch64", ARM, 129, 98, EPERM),  # kill another
    ],
)
def test_the_filter(machine: str, arch: int, number: int, argument: int, action: int) -> None:
    assert evaluate(seccomp.program(machine, 99), arch=arch, number=number, argument=argument) == action


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
