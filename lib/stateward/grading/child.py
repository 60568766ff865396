"""The life of one forked grading process: confine, run the check, report, end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import traceback
from collections.abc import Sequence

from stateward.grading import frames
from stateward.grading.check import run_check
from stateward.grading.checkapi.judge import Conversation, JudgeFault
from stateward.grading.confine import Walls, confine, install_hook

_MAX_TRACE = 8_000  # characters


class Channel:
    """The child's end of its line to the warm grader. `ask` may be called from several threads."""

    def __init__(self, fd: int, key: str) -> None:
        self.fd, self.key = fd, key
        self.lock = threading.Lock()

    def send(self, header: frames.Header, body: bytes = b"") -> None:
        data = memoryview(frames.pack({**header, "key": self.key}, body))
        while data:
            data = data[os.write(self.fd, data) :]

    def ask(self, conversations: Sequence[Conversation]) -> list[str]:
        """The judge's answers, in order. Raises `JudgeFault` when there are none."""
        with self.lock:
            self.send({"op": "judge"}, json.dumps(list(conversations)).encode("utf-8", "surrogatepass"))
            head, body = frames.lengths(self._read(frames.PREFIX))
            frames.header(self._read(head))
            answers: list[str] = json.loads(self._read(body))
            return answers

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self.fd, size - len(parts))
            if not part:
                raise JudgeFault("the grader went away while the check waited for the judge")
            parts += part
        return bytes(parts)


def run_child(fd: int, request: frames.Header, body: bytes, *, key: str, parent: int, walls: Walls) -> None:
    """Run the check of `request` on the evidence in `body` and report over `fd`. Never returns.

    Args:
        key: what every message to the grader must have, or the check wrote it. The rest: see `confine`.
    """
    channel = Channel(fd, key)
    try:
        _leave_parent({fd, walls.rules})
        limits = {"memory_bytes": request["memory_bytes"], "cpu_seconds": request["deadline"]}
        confine(**limits, parent=parent, walls=walls)
        install_hook()
        verdict = run_check(request["check"], json.loads(body), channel.ask, request["prints"])
        report = json.dumps(verdict, default=repr).encode("utf-8", "surrogatepass")
    except BaseException as error:  # noqa: BLE001 - the end of this process: whatever happened is the report
        said = "".join(traceback.format_exception(error))[-_MAX_TRACE:]
        cause = f"the check's result could not be made: {said}"
        report = json.dumps({"outcome": "void", "kind": "grader", "cause": cause}).encode()
    channel.send({"op": "verdict"}, report)
    os._exit(0)  # no exit handlers, and no waiting for threads that the check left


def _leave_parent(keep: set[int | None]) -> None:
    """A session of its own, no signal handlers of the grader's, and no open file but `keep` and the null device."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    with os.scandir("/proc/self/fd") as listing:
        others = [int(entry.name) for entry in listing if int(entry.name) > 2 and int(entry.name) not in keep]
    for number in others:
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
            os.close(number)
    random.seed(int.from_bytes(os.urandom(16)))  # a fork repeats its parent's random numbers


def exit_text(status: int) -> str:
    """What a wait status says."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    names = {number.value: number.name for number in signal.Signals}  # most real-time signals have none
    return f"signal {-code} ({names.get(-code, signal.strsignal(-code))})"
