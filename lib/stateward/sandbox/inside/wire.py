"""Messages between the client and the processes of a sandbox.

One message is one JSON object in one packet of a connected ``SOCK_SEQPACKET`` Unix socket pair, so there is no framing
to get wrong and no half-read message. A packet is limited by the socket's send buffer (about 200 kB); a larger message
travels as an anonymous memory file whose descriptor is attached. Descriptors may be attached to any message.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

#: Larger messages go through a memory file. Well under the smallest default send buffer (Linux: 212,992 bytes).
INLINE_BYTES = 60_000
_MAX_FDS = 4
_INLINE, _MEMORY = b"i", b"m"


class MessageTooLarge(ValueError):
    """A message is over the receiver's limit; `size` in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(f"a message of {size} bytes is over the limit of {limit}")


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends; both are closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(message: dict[str, Any], fds: Sequence[int] = ()) -> tuple[bytes, list[int], int]:
    """(packet, descriptors to attach, the memory file to close after sending or -1)."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) <= INLINE_BYTES:
        return _INLINE + body, list(fds), -1
    memory = os.memfd_create("stateward-message", os.MFD_CLOEXEC)
    view = memoryview(body)
    while view:
        view = view[os.write(memory, view) :]
    return _MEMORY, [*fds, memory], memory


def decode(packet: bytes, fds: list[int], limit: int) -> tuple[dict[str, Any], list[int]]:
    """Inverse of `encode`; closes the memory file. Raises `MessageTooLarge`."""
    if packet[:1] == _INLINE:
        return json.loads(packet[1:]), fds
    memory = fds.pop()
    try:
        size = os.fstat(memory).st_size
        if size > limit:
            raise MessageTooLarge(size, limit)
        parts, offset = [], 0
        while offset < size:
            part = os.pread(memory, size - offset, offset)
            if not part:
                raise ValueError("a message's memory file ended early")
            parts.append(part)
            offset += len(part)
    finally:
        os.close(memory)
    return json.loads(b"".join(parts)), fds


def send(sock: socket.socket, packet: bytes, fds: Sequence[int]) -> None:
    """Send one encoded message; raises OSError as `socket.sendmsg` does."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([packet], ancillary)


def receive(sock: socket.socket, limit: int) -> tuple[dict[str, Any], list[int]] | None:
    """One message with its descriptors, or None at the end of the connection (also when the peer was killed)."""
    try:
        packet, fds, _flags, _address = socket.recv_fds(sock, INLINE_BYTES + 1, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    return decode(packet, fds, limit) if packet else None


def put(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Encode and send on a blocking socket. A peer that is gone is no error here: `receive` notices its end."""
    packet, attach, memory = encode(message, fds)
    try:
        send(sock, packet, attach)
    except ConnectionError:
        pass
    finally:
        if memory >= 0:
            os.close(memory)
