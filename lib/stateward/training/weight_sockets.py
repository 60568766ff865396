"""How a trainer process hands its weights to its engine: corrections of Verl 0.9.1, as in `corrections`.

Verl sends them over a Unix socket in ``/tmp`` that is named after Ray's job, the engine and the device. Every Ray
numbers its jobs from one, so the runs of one node would share these sockets. And the sender waits for each answer
without a bound, while what the engine said when it failed is read only after the last of them.
"""

from __future__ import annotations

import tempfile
import time
from contextvars import ContextVar
from typing import Any

from stateward.errors import SystemFault

#: How long an engine may take over one part of the weights (some GB at most, loaded at memory speed).
SECONDS = 600.0
_LOOK_SECONDS = 1.0
_VERLS = "ipc:///tmp/rl-colocate-zmq-"

#: What becomes of the engine's call that takes the weights, where this process made it (a `concurrent.futures.Future`).
_taking: ContextVar[Any] = ContextVar("taking", default=None)


def private(handle: str) -> str:
    """The socket of this run alone: its temporary folder is its own on every node."""
    return handle.replace(_VERLS, f"ipc://{tempfile.gettempdir()}/rl-colocate-zmq-")


def own_receiver(original: Any) -> Any:
    """The engine's end, in the run's own folder."""

    def _init_socket(self: Any) -> None:
        self.zmq_handle = private(self.zmq_handle)
        original(self)

    return _init_socket


def own_sender(original: Any) -> Any:
    """The trainer's end, in the run's own folder, and with a bound."""

    def _init_socket(self: Any) -> None:
        self.zmq_handle = private(self.zmq_handle)
        original(self)
        self.socket.linger = 0  # it ends with an answer, so nothing is lost
        self.socket = BoundedSocket(self.socket, _taking.get(), SECONDS)

    return _init_socket


def remembered_call(original: Any) -> Any:
    """A call that nobody waits for yet is the one that takes the weights; the sender looks at it while it waits."""

    async def _execute_method(self: Any, method: str, non_block: bool = False, *rest: Any, **more: Any) -> Any:
        answer = await original(self, method, non_block, *rest, **more)
        if non_block:
            _taking.set(answer.future() if answer is not None else None)
        return answer

    return _execute_method


class BoundedSocket:
    """A socket that asks and is answered, which waits no longer than its peer lives.

    Args:
        taking: future of the peer's work, whose exception is the peer's own words; None where another process has it.
        seconds: how long the peer may be silent.
    """

    def __init__(self, socket: Any, taking: Any, seconds: float) -> None:
        self._socket, self._taking, self._seconds = socket, taking, seconds

    def send_pyobj(self, value: Any) -> None:
        """Raises as `recv` does; there is no one to send to before the peer has connected."""
        import zmq

        self._wait_for(zmq.POLLOUT)
        self._socket.send_pyobj(value)

    def recv(self) -> bytes:
        """The peer's answer.

        Raises:
            SystemFault: the peer failed, with its own words; or it was silent for too long.
        """
        import zmq

        self._wait_for(zmq.POLLIN)
        answer: bytes = self._socket.recv()
        return answer

    def close(self) -> None:
        self._socket.close()

    def _wait_for(self, event: int) -> None:
        deadline = time.monotonic() + self._seconds
        while not self._socket.poll(1000 * _LOOK_SECONDS, event):
            failure = self._taking.exception() if self._taking is not None and self._taking.done() else None
            if failure is not None:
                raise SystemFault("training", f"a rollout engine failed while it took weights: {failure}") from failure
            if time.monotonic() > deadline:
                raise SystemFault(
                    "training", f"a rollout engine did not take weights within {self._seconds:g} s ({self._where()})"
                )

    def _where(self) -> str:
        return str(self._socket.LAST_ENDPOINT.decode().rstrip("\0"))
