"""The warm grader: a process of its own, with one thread, that forks one confined child a check.

Run as ``python -P -m stateward.grading.worker``; speaks `stateward.grading.frames` on standard input and output. It
ends, with every child, when its input ends.

From the client: ``grade`` {id, check, deadline, memory_bytes, prints, max_result_bytes} with the evidence as body;
``answers`` {id} with the judge's answers; ``cancel`` {id}. To the client: ``ready`` {isolation}; ``judge`` {id} with
conversations; ``done`` {id, cause, seconds, cpu} with the verdict, which is empty when the child gave none.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from types import CodeType

from stateward.grading import confine, frames
from stateward.grading.checkapi.install import install
from stateward.grading.child import exit_text, run_child

_GRACE_SECONDS = 0.5  # for a child that has said its last word to end by itself
_ANSWER_SECONDS = 1.0  # for a child to take the judge's answers
_KEPT_CODE = 256  # compiled checks
_CHUNK = 1 << 20

#: What checks import most: imported once here instead of once a check.
_WARM = ("_strptime", "collections", "copy", "datetime", "decimal", "functools", "itertools", "json", "math", "re")


@dataclass(kw_only=True)
class _Job:
    """A check under way."""

    id: int
    pid: int
    channel: socket.socket
    limit: float  # seconds of wall clock
    max_result_bytes: int
    started: float
    left: float  # of `limit`, when the clock last started; it stands while the judge is asked
    resumed: float
    waiting: bool = False
    buffer: frames.Buffer = field(default_factory=frames.Buffer)
    verdict: bytes = b""
    cause: str = ""
    ended: float = 0.0  # when it gave its verdict or closed its channel

    def deadline(self) -> float:
        if self.ended:
            return self.ended + _GRACE_SECONDS
        return float("inf") if self.waiting else self.resumed + self.left


class Worker:
    """One loop over the client's pipe, the children's channels, their ends and their deadlines."""

    def __init__(self, source: int, sink: int, isolation: confine.Isolation) -> None:
        self.source, self.sink, self.isolation = source, sink, isolation
        self.selector = selectors.DefaultSelector()
        self.jobs: dict[int, _Job] = {}
        self.code: OrderedDict[str, CodeType | None] = OrderedDict()
        self.requests = frames.Buffer()
        self.wake, wake_sender = socket.socketpair()
        for end in (self.wake, wake_sender):
            end.setblocking(False)
        self._wake_sender = wake_sender
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_sender.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the client's pipe ends."""
        self.selector.register(self.source, selectors.EVENT_READ, None)
        self.selector.register(self.wake, selectors.EVENT_READ, self.wake)
        self._send({"op": "ready", "isolation": self.isolation.text})
        try:
            while True:
                now = time.monotonic()
                next_deadline = min((job.deadline() for job in self.jobs.values()), default=float("inf"))
                timeout = None if next_deadline == float("inf") else max(0.0, next_deadline - now)
                for key, _ in self.selector.select(timeout):
                    if key.data is None:
                        if not self._read_client():
                            return
                    elif key.data is self.wake:
                        self.wake.recv(_CHUNK)
                    elif key.data.id in self.jobs:
                        self._receive(key.data)
                        if key.data.cause:
                            self._kill(key.data, key.data.cause)
                self._reap()
                self._enforce_deadlines()
        finally:
            for job in list(self.jobs.values()):
                self._kill(job, "the grader is ending")

    def _read_client(self) -> bool:
        data = os.read(self.source, _CHUNK)
        for header, body in self.requests.feed(data):
            if header["op"] == "grade":
                self._start(header, body)
            elif header["op"] == "answers" and header["id"] in self.jobs:
                self._answer(self.jobs[header["id"]], body)
            elif header["op"] == "cancel" and header["id"] in self.jobs:
                self._kill(self.jobs[header["id"]], "cancelled")
        return bool(data)

    def _start(self, request: frames.Header, body: bytes) -> None:
        code = self._compiled(request["check"])
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                run_child(theirs.fileno(), request, code, body, parent)
            finally:
                os._exit(70)  # nothing of the grader's own loop may run in a child, whatever happened above
        theirs.close()
        ours.setblocking(False)
        now = time.monotonic()
        job = _Job(
            id=request["id"],
            pid=pid,
            channel=ours,
            limit=request["deadline"],
            max_result_bytes=request["max_result_bytes"],
            started=now,
            left=request["deadline"],
            resumed=now,
        )
        self.jobs[job.id] = job
        self.selector.register(ours, selectors.EVENT_READ, job)

    def _compiled(self, check: dict[str, str]) -> CodeType | None:
        """The check's code; None when it does not compile, which the child then reports as the check's fault."""
        key = f"{check['file']}\0{check['source']}"
        if key in self.code:
            self.code.move_to_end(key)
            return self.code[key]
        try:
            code = compile(check["source"], check["file"], "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            code = None
        self.code[key] = code
        if len(self.code) > _KEPT_CODE:
            self.code.popitem(last=False)
        return code

    def _receive(self, job: _Job) -> bool:
        """Take some of what a child has sent. False when there is no more for now, or for good, or no sense in it."""
        try:
            data = job.channel.recv(_CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.selector.unregister(job.channel)
            job.channel.close()
            job.ended = job.ended or time.monotonic()
            return False
        if len(job.buffer) + len(data) > job.max_result_bytes:
            job.cause = f"the check reported more than {job.max_result_bytes} bytes"
            return False
        try:
            messages = [(header["op"], body) for header, body in job.buffer.feed(data)]
        except (ValueError, KeyError, TypeError, RecursionError):
            job.cause = "the check wrote into its line to the grader"
            return False
        for kind, body in messages:
            if kind == "verdict":
                job.verdict, job.ended = body, time.monotonic()
            elif not job.waiting and not job.ended:
                job.left -= time.monotonic() - job.resumed
                job.waiting = True
                self._send({"op": "judge", "id": job.id}, body)
        return True

    def _answer(self, job: _Job, body: bytes) -> None:
        job.waiting, job.resumed = False, time.monotonic()
        try:
            job.channel.settimeout(_ANSWER_SECONDS)
            job.channel.sendall(frames.pack({"op": "answers"}, body))
            job.channel.setblocking(False)
        except OSError as error:
            self._kill(job, f"the check did not take the judge's answer: {error}")

    def _reap(self) -> None:
        by_pid = {job.pid: job for job in self.jobs.values()}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                self._finish(by_pid[pid], status, usage)

    def _finish(self, job: _Job, status: int, usage: resource.struct_rusage) -> None:
        """A child is gone: take its last words, report, forget it."""
        while job.channel.fileno() >= 0 and not job.cause and self._receive(job):
            pass
        if job.channel.fileno() >= 0:
            self.selector.unregister(job.channel)
            job.channel.close()
        del self.jobs[job.id]
        if not self.isolation.filter:
            confine.kill_orphans({other.pid for other in self.jobs.values()})
        if not job.verdict and not job.cause:
            job.cause = f"the check's process ended without a verdict: {exit_text(status)}"
        header = {
            "op": "done",
            "id": job.id,
            "cause": job.cause,
            "seconds": time.monotonic() - job.started,
            "cpu": usage.ru_utime + usage.ru_stime,
        }
        self._send(header, b"" if job.cause else job.verdict)

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for job in list(self.jobs.values()):
            if job.deadline() > now:
                continue
            if job.verdict:
                self._kill(job, "")
            elif job.ended:
                self._kill(job, "the check closed its line to the grader and went on")
            else:
                self._kill(job, f"the check passed its time limit of {job.limit:g} s")

    def _kill(self, job: _Job, cause: str) -> None:
        """End a child and all of its process group; `cause` is why, empty after a verdict."""
        job.cause = cause
        for kill in (os.killpg, os.kill):  # until the child has made its own group there is none to kill
            with contextlib.suppress(ProcessLookupError):
                kill(job.pid, signal.SIGKILL)
        _, status, usage = os.wait4(job.pid, 0)
        self._finish(job, status, usage)

    def _send(self, header: frames.Header, body: bytes = b"") -> None:
        data = memoryview(frames.pack(header, body))
        while data:
            data = data[os.write(self.sink, data) :]


def main() -> None:
    """Take over standard input and output, go where there is no network, and serve."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    namespace = confine.enter_namespace()
    confine.drop_capabilities()
    confine.adopt_orphans()
    isolation = confine.Isolation(namespace=namespace, filter=confine.filter_works())
    install()
    for name in _WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what exists now stays shared with the children
    Worker(source, sink, isolation).run()


if __name__ == "__main__":
    main()
