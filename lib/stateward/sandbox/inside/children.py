"""A single-threaded process that forks children, answers its control socket, and leaves nobody behind.

Both the warm parent (whose children are snapshots) and a snapshot (whose children are worlds) are one. A child is
started on a ``start`` message with an id and attached descriptors, is reaped when it ends, and its end is reported as
``{"exit": id, "code": n, "signal": n, "log": last output}``.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from stateward.sandbox.inside import bounds, wire

#: How often a process checks that its parent still is its parent, in milliseconds; normally the socket tells first.
_PARENT_CHECK_MS = 2_000
_LOG_TAIL_BYTES = 2_000
_MESSAGE_LIMIT = 1 << 30


@dataclass
class _Child:
    name: str
    pid: int
    log: int
    scratch: str


class Children:
    """Args:
    control: this end of the control socket.
    scratch: folder under which each child gets a folder of its own, removed when the child was reaped.
    child: runs in a child with (message, descriptors, scratch folder) and never returns.
    farewell: signal that a child gets when this process ends, by whatever cause.
    grace: seconds between `farewell` and SIGKILL when this process ends in good order.
    """

    def __init__(
        self,
        control: socket.socket,
        scratch: str,
        child: Callable[[dict[str, Any], list[int], str], NoReturn],
        *,
        farewell: int,
        grace: float,
    ) -> None:
        self._control, self._scratch, self._child = control, scratch, child
        self._farewell, self._grace = farewell, grace
        self._by_pid: dict[int, _Child] = {}
        self._by_name: dict[str, _Child] = {}
        self._ending = False
        self._parent = os.getppid()

    def run(self) -> None:
        """Serve until the control socket closes, SIGTERM comes, or the parent is gone; then end every child."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle; it then closes the socket
        bounds.adopt_orphans()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._ending:
            ready = {fd for fd, _event in poll.poll(_PARENT_CHECK_MS)}
            if self._wake_read in ready:
                self._drain()
                self._reap()
            if self._control.fileno() in ready:
                self._on_message()
            if os.getppid() != self._parent:
                self._ending = True
        self._end_children()

    def _on_term(self, *_: object) -> None:
        self._ending = True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 512):
                pass

    def _on_message(self) -> None:
        received = wire.receive(self._control, _MESSAGE_LIMIT)
        if received is None:
            self._ending = True
            return
        message, fds = received
        if "start" in message:
            self._start(message, fds)
        elif "kill" in message and (child := self._by_name.get(message["kill"])):
            bounds.kill_group(child.pid)

    def _start(self, message: dict[str, Any], fds: list[int]) -> None:
        name = message["start"]
        log = os.memfd_create("stateward-log", os.MFD_CLOEXEC)
        scratch = os.path.join(self._scratch, name)
        os.mkdir(scratch, 0o700)
        sys.stdout.flush()
        sys.stderr.flush()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_child(me, log, scratch)
                self._child(message, fds, scratch)
            except BaseException:  # noqa: BLE001 - into the log, whose tail is reported with the exit
                traceback.print_exc()
            finally:
                os._exit(70)  # `child` never returns; whatever came out of it must not run this loop
        for fd in fds:
            os.close(fd)
        # Also here, so that a kill that follows at once finds the group; whichever of the two comes first wins.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self._by_pid[pid] = self._by_name[name] = _Child(name, pid, log, scratch)

    def _become_child(self, parent: int, log: int, scratch: str) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        bounds.die_with_parent(parent, self._farewell)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._control.close()
        for sibling in self._by_pid.values():
            os.close(sibling.log)
        with contextlib.suppress(PermissionError):  # the parent may have made the group already, and a leader cannot
            os.setpgid(0, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ["TMPDIR"] = scratch
        tempfile: Any = sys.modules.get("tempfile")
        if tempfile is not None:
            tempfile.tempdir = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._by_pid.pop(pid, None)
            if child is None:
                continue  # an adopted orphan
            self._by_name.pop(child.name)
            bounds.kill_group(pid)
            bounds.kill_adopted(set(self._by_pid))
            shutil.rmtree(child.scratch, ignore_errors=True)
            report = {
                "exit": child.name,
                "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                "log": tail(child.log),
            }
            os.close(child.log)
            wire.put(self._control, report)

    def _end_children(self) -> None:
        for pid in self._by_pid:
            os.kill(pid, self._farewell)
        limit = time.monotonic() + self._grace
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while self._by_pid:
            left = limit - time.monotonic()
            if left <= 0:
                for pid in self._by_pid:
                    bounds.kill_group(pid)
                left = 5.0
                limit = time.monotonic() + left
            poll.poll(left * 1_000)
            self._drain()
            self._reap()
        bounds.kill_adopted(set())


def tail(log: int) -> str:
    """The last output in a log's memory file."""
    size = os.fstat(log).st_size
    start = max(0, size - _LOG_TAIL_BYTES)
    return os.pread(log, size - start, start).decode(errors="replace").strip()
