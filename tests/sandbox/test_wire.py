from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.sandbox.inside import wire

LIMIT = 1 << 24

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def exchange(
    message: dict[str, object], fds: tuple[int, ...] = (), limit: int = LIMIT
) -> tuple[dict[str, object], list[int]]:
    ours, theirs = wire.pair()
    with ours, theirs:
        wire.put(ours, message, fds)
        received = wire.receive(theirs, limit)
        assert received is not None
        return received


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_a_message_arrives_as_it_was_sent(message: dict[str, object]) -> None:
    assert exchange(message) == (message, [])


@pytest.mark.parametrize("size", [wire.INLINE_BYTES - 100, wire.INLINE_BYTES, 3_000_000])
def test_a_large_message_travels_with_a_descriptor_beside_it(size: int) -> None:
    read, write = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    message, fds = exchange({"text": "é" * (size // 6)}, (write,))
    assert message == {"text": "é" * (size // 6)}
    (copy,) = fds
    os.write(copy, b"through the copy")
    assert os.read(read, 100) == b"through the copy"
    for fd in (copy, read, write):
        os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_a_lone_surrogate_survives() -> None:
    assert exchange({"text": "\ud800"}) == ({"text": "\ud800"}, [])


def test_a_message_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(wire.MessageTooLarge, match="over the limit of 1000"):
        exchange({"text": "x" * 100_000}, limit=1000)


def test_the_end_of_a_connection_is_none() -> None:
    ours, theirs = wire.pair()
    ours.close()
    assert wire.receive(theirs, LIMIT) is None
    wire.put(theirs, {"nobody": "reads this"})
    theirs.close()


def test_descriptors_are_not_inherited() -> None:
    for end in wire.pair():
        assert not end.get_inheritable()
        assert end.type & socket.SOCK_SEQPACKET
        end.close()
