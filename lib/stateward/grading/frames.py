"""Messages over a pipe: a JSON header and a body of bytes, each with its length before it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

_LENGTHS = struct.Struct("!II")
PREFIX = _LENGTHS.size

Header = dict[str, Any]


def pack(header: Header, body: bytes = b"") -> bytes:
    head = json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return _LENGTHS.pack(len(head), len(body)) + head + body


def lengths(prefix: bytes) -> tuple[int, int]:
    """Bytes of header and body, from the first `PREFIX` bytes of a message."""
    head, body = _LENGTHS.unpack(prefix)
    return head, body


def header(raw: bytes) -> Header:
    found: Header = json.loads(raw.decode("utf-8", "surrogatepass"))
    return found


class Buffer:
    """Collects bytes as they arrive and gives out whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    def feed(self, data: bytes) -> Iterator[tuple[Header, bytes]]:
        self._bytes += data
        while len(self._bytes) >= PREFIX:
            head, body = lengths(bytes(self._bytes[:PREFIX]))
            end = PREFIX + head + body
            if len(self._bytes) < end:
                return
            message = header(bytes(self._bytes[PREFIX : PREFIX + head])), bytes(self._bytes[PREFIX + head : end])
            del self._bytes[:end]
            yield message
