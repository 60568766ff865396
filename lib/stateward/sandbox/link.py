"""The client's end of a sandbox socket, on an asyncio loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stateward.sandbox.inside import wire


class Link:
    """Sends and receives `wire` messages without blocking the loop.

    Args:
        sock: one end of a pair; the link owns it.
        on_message: called with each message.
        on_close: called once, with a cause if the connection ended for another reason than the peer's closing it.
        limit: bytes of the largest message accepted.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[dict[str, Any]], None],
        on_close: Callable[[str], None],
        *,
        limit: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock, self._on_message, self._on_close, self._limit = sock, on_message, on_close, limit
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._open = True
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send now, or as soon as the socket takes it. The caller may close `fds` on return. Silent once closed."""
        if not self._open:
            return
        packet, attach, memory = wire.encode(message, fds)
        kept = [memory] if memory >= 0 else []
        if self._waiting or not self._sent(packet, attach):
            duplicates = [os.dup(fd) for fd in attach]
            self._waiting.append((packet, duplicates))
            self._loop.add_writer(self._sock, self._writable)
        for fd in kept:
            os.close(fd)

    def close(self) -> None:
        """Close this end; `on_close` is not called."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        for _packet, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()
        self._sock.close()

    def _sent(self, packet: bytes, fds: list[int]) -> bool:
        """False if the socket is full. A peer that is gone counts as sent: the reader notices its end."""
        try:
            wire.send(self._sock, packet, fds)
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True

    def _writable(self) -> None:
        while self._waiting:
            packet, fds = self._waiting[0]
            if not self._sent(packet, fds):
                return
            self._waiting.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            received = wire.receive(self._sock, self._limit)
        except BlockingIOError:
            return
        except ValueError as error:
            self._finish(str(error))
            return
        if received is None:
            self._finish("")
            return
        message, fds = received
        for fd in fds:  # nothing that the client receives carries descriptors of its own
            os.close(fd)
        self._on_message(message)

    def _finish(self, cause: str) -> None:
        self.close()
        self._on_close(cause)
