"""The client's side of a process that forks children on request; `inside.children` is the other side."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from stateward.sandbox.link import Link

#: Seconds that an ended world or snapshot may take to run its teardown before it is killed.
CLOSE_GRACE_SECONDS = 8.0
#: Seconds within which a parent reports a child's end after the child's socket closed.
REPORT_SECONDS = 2.0


def describe_exit(report: dict[str, Any]) -> str:
    """How a process ended, with its last output."""
    number = report["signal"]
    how = f"killed by {signal.Signals(number).name}" if number else f"exit status {report['code']}"
    return f"{how}; last output: {report['log']}" if report["log"] else how


class ParentHandle:
    """What the handles of a warm parent and of a snapshot share: a link, a first answer, and children that end."""

    def __init__(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self._exits: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._link = Link(sock, self._on_message, self._on_close, limit=1 << 30)

    def start_child(self, name: str, message: dict[str, Any], fd: int) -> asyncio.Future[dict[str, Any]]:
        """Fork a child with one descriptor; the future is its exit report."""
        exited: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.gone.done():
            exited.set_result(_orphaned(self.gone.result()))
        else:
            self._exits[name] = exited
            self._link.send({"start": name, **message}, [fd])
        return exited

    def kill_child(self, name: str) -> None:
        self._link.send({"kill": name})

    @property
    def alive(self) -> bool:
        return not self.gone.done()

    @property
    def children(self) -> int:
        return len(self._exits)

    def _on_message(self, message: dict[str, Any]) -> None:
        if "exit" in message:
            exited = self._exits.pop(message["exit"], None)
            if exited is not None and not exited.done():
                exited.set_result(message)
        elif not self.answer.done():
            self.answer.set_result(message)

    def _on_close(self, cause: str) -> None:
        self._ended(cause or "its process ended")

    def _ended(self, cause: str) -> None:
        if not self.gone.done():
            self.gone.set_result(cause)
        if not self.answer.done():
            self.answer.set_result({"ready": False, "cause": cause})
        for exited in self._exits.values():
            if not exited.done():
                exited.set_result(_orphaned(cause))
        self._exits.clear()


def _orphaned(cause: str) -> dict[str, Any]:
    """The exit report of a child whose parent cannot report any more: children are killed with their parent."""
    return {"code": 0, "signal": signal.SIGKILL, "log": f"its parent process: {cause}"}
