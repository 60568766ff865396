"""The client's side of forked servers: warm parents, snapshots, and the forks that are worlds."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault
from stateward.sandbox import reserved
from stateward.sandbox.inside import wire
from stateward.sandbox.inside.children import tail
from stateward.sandbox.inside.locate import NotForkable, Target
from stateward.sandbox.limits import SandboxLimits
from stateward.sandbox.link import Link
from stateward.tasks.task import ServerSpec

#: Folder that holds the `stateward` package, for a server's interpreter that does not have it installed.
_LIBRARY = str(Path(__file__).parents[2])
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
#: Seconds that an ended world or snapshot may take to run its teardown before it is killed.
CLOSE_GRACE_SECONDS = 6.0
#: Seconds within which the parent reports a child's end after the child's socket closed.
_REPORT_SECONDS = 2.0


def server_environment(spec: ServerSpec) -> dict[str, str]:
    """The environment of a server's processes: ours without secrets, single-threaded numerics, and the spec's own."""
    env = {k: v for k, v in os.environ.items() if k.startswith("TYPESENSE_") or not _SECRET.search(k)}
    env |= {
        "FASTMCP_LOG_LEVEL": "ERROR",  # a rejected argument otherwise costs a rendered warning
        "PYTHONUNBUFFERED": "1",  # what a dying server printed last is the cause that gets recorded
        # A numeric library that starts its threads at import could not be forked.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    return env | spec.env


def describe_exit(report: dict[str, Any]) -> str:
    """How a process ended, with its last output."""
    number = report["signal"]
    how = f"killed by {signal.Signals(number).name}" if number else f"exit status {report['code']}"
    return f"{how}; last output: {report['log']}" if report["log"] else how


class _Parent:
    """What the handles of a warm parent and of a snapshot share: a link, a first answer, and children that end."""

    def __init__(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self._exits: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._link = Link(sock, self._on_message, self._on_close, limit=1 << 30)

    def start_child(self, name: str, message: dict[str, Any], fd: int) -> asyncio.Future[dict[str, Any]]:
        """Fork a child with one descriptor; the future is its exit report."""
        exited = asyncio.get_running_loop().create_future()
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
                exited.set_result({"code": 0, "signal": signal.SIGKILL, "log": f"its parent process: {cause}"})
        self._exits.clear()


class WarmParent(_Parent):
    """A process that has imported a server's module. Make one with `start`."""

    def __init__(self, spec: ServerSpec, target: Target, limits: SandboxLimits, scratch: Path) -> None:
        ours, theirs = wire.pair()
        code = (
            f"import sys; sys.path.append({_LIBRARY!r}); "
            f"from stateward.sandbox.inside.parent import main; main({theirs.fileno()})"
        )
        self._log = os.memfd_create("stateward-log", os.MFD_CLOEXEC)
        self._folder = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
        try:
            self._process = subprocess.Popen(
                [target.python, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=server_environment(spec),
                cwd=spec.cwd or None,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is the client's to handle
            )
        except OSError as error:
            ours.close()
            os.close(self._log)
            self._folder.rmdir()
            raise SystemFault("sandbox", f"server {spec.name!r}: cannot start {target.python}: {error}") from error
        finally:
            theirs.close()
        super().__init__(ours)
        self.spec, self.limits = spec, limits
        self.tools: list[dict[str, Any]] = []
        self.in_child = ""  # why init runs in every world; empty: it runs in the snapshot
        self._names = itertools.count(1)
        order = {"kind": target.kind, "name": target.name, "argv": list(target.argv), "scratch": str(self._folder)}
        self._link.send(order)

    @classmethod
    async def start(cls, spec: ServerSpec, target: Target, limits: SandboxLimits, scratch: Path) -> WarmParent:
        """Import the server.

        Raises:
            NotForkable: it must run as an ordinary process.
            SystemFault: "sandbox", with the traceback's end, if the import raised or took too long.
        """
        self = cls(spec, target, limits, scratch)
        seconds = limits.start_deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self.answer
            if answer["ready"]:
                self.tools, self.in_child = answer["tools"], answer["in_child"]
                if not self.in_child and reserved.wants_session(self.tools, reserved.INIT):
                    self.in_child = "its init asks for session_id"
                return self
        except TimeoutError:
            answer = {"cause": f"its import took longer than {seconds:g} s"}
            self._process.kill()
        except asyncio.CancelledError:
            self._process.kill()
            await self.close()
            raise
        said = tail(self._log)
        await self.close()
        if "not_forkable" in answer:
            raise NotForkable(answer["not_forkable"])
        cause = f"server {spec.name!r} cannot be imported: {answer['cause'].strip()}"
        raise SystemFault("sandbox", cause + (f"; last output: {said}" if said else ""))

    @property
    def pid(self) -> int:
        return self._process.pid

    def new_name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"

    async def close(self) -> None:
        """End the process and everything it forked; returns when it is gone."""
        self._link.close()
        self._ended("it was closed")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._process.wait, 2 * CLOSE_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await loop.run_in_executor(None, self._process.wait)
        finally:
            if self._log >= 0:
                os.close(self._log)
                self._log = -1
            shutil.rmtree(self._folder, ignore_errors=True)


class Snapshot(_Parent):
    """A server initialised with one state. Make one with `start`."""

    def __init__(self, warm: WarmParent, config: dict[str, Any]) -> None:
        ours, theirs = wire.pair()
        super().__init__(ours)
        self.warm, self.config = warm, config
        self.in_child = warm.in_child
        self.init_result: dict[str, Any] = {}
        self.initial_state: dict[str, Any] = {}
        self._name = warm.new_name("s")
        with theirs:
            self._exited = warm.start_child(self._name, {}, theirs.fileno())
        self._init = reserved.call_of(warm.tools, reserved.INIT, {"config": config}, self._name)
        teardown = reserved.call_of(warm.tools, reserved.TEARDOWN, {}, self._name)
        self._link.send({"init": self._init, "teardown": teardown, "in_child": bool(self.in_child)})

    @classmethod
    async def start(cls, warm: WarmParent, config: dict[str, Any]) -> Snapshot:
        """Initialise the server with `config`, or make ready to do so in every world if this server needs that.

        Raises:
            SystemFault: "init" if init raised or answered anything but ok, or took too long.
        """
        snapshot = await cls._attempt(warm, config)
        if snapshot is None:  # something must not cross the fork; `_attempt` has set `warm.in_child`
            snapshot = await cls._attempt(warm, config)
            assert snapshot is not None
        return snapshot

    @classmethod
    async def _attempt(cls, warm: WarmParent, config: dict[str, Any]) -> Snapshot | None:
        self, limits, spec = cls(warm, config), warm.limits, warm.spec
        try:
            async with asyncio.timeout(limits.start_deadline_seconds):
                answer = await self.answer
            if not answer["ready"] and answer.get("obstacles") and not self.in_child:
                warm.in_child = "after init there are " + " and ".join(answer["obstacles"])
                await self.close()
                return None
            if not answer["ready"]:
                raise SystemFault("init", f"server {spec.name!r}: {await self._cause(answer)}")
            if self._init is not None and not self.in_child:
                self.init_result = reserved.parse_init(spec.name, answer["init"])
            if not self.in_child:
                # In a fork of its own, so that a state tool with side effects leaves the snapshot as it was.
                probe = await ForkedServer.start(self, self._name)
                try:
                    async with asyncio.timeout(limits.start_deadline_seconds):
                        self.initial_state = await probe.state()
                finally:
                    await probe.close()
        except TimeoutError:
            warm.kill_child(self._name)
            await self.close()
            raise SystemFault(
                "init", f"server {spec.name!r}: init took longer than {limits.start_deadline_seconds:g} s"
            ) from None
        except BaseException:
            warm.kill_child(self._name)
            await self.close()
            raise
        return self

    async def _cause(self, answer: dict[str, Any]) -> str:
        if "obstacles" in answer:
            return "it cannot be forked: " + " and ".join(answer["obstacles"])
        if self.gone.done():  # it died instead of answering; its parent knows how
            async with asyncio.timeout(_REPORT_SECONDS):
                return describe_exit(await asyncio.shield(self._exited))
        return str(answer["cause"]).strip()

    async def close(self) -> None:
        """End the snapshot and its worlds, with its teardown."""
        self._link.close()
        self._ended("it was closed")
        try:
            async with asyncio.timeout(CLOSE_GRACE_SECONDS):
                await asyncio.shield(self._exited)
        except TimeoutError:
            self.warm.kill_child(self._name)
            await asyncio.shield(self._exited)


class ForkedServer:
    """A fork of a snapshot: one server of one world. Make one with `start`."""

    def __init__(self, snapshot: Snapshot, session_id: str) -> None:
        warm, limits = snapshot.warm, snapshot.warm.limits
        self._snapshot, self._session_id = snapshot, session_id
        self.name, self.tools = warm.spec.name, warm.tools
        self.init_result, self.initial_state = snapshot.init_result, snapshot.initial_state
        self._fork_name = warm.new_name("w")
        self._pid = 0
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self._seq = 0
        self._over = False
        ours, theirs = wire.pair()
        self._link = Link(ours, self._on_message, self._fail, limit=2 * limits.max_state_bytes)
        teardown = reserved.call_of(warm.tools, reserved.TEARDOWN, {}, session_id) if snapshot.in_child else None
        message = {
            "graceful": bool(snapshot.in_child),
            "teardown": teardown,
            "limits": {
                "memory_mb": limits.world_memory_mb,
                "cpu_seconds": limits.world_cpu_seconds,
                "file_mb": limits.max_file_mb,
                "output_bytes": limits.max_output_bytes,
            },
        }
        with theirs:
            self._exited = snapshot.start_child(self._fork_name, message, theirs.fileno())

    @classmethod
    async def start(cls, snapshot: Snapshot, session_id: str) -> ForkedServer:
        """Fork; returns when the fork has its MCP session and, where init belongs into the world, is initialised.

        Raises:
            SystemFault: "sandbox", or "init" from a server's own hook or init.
        """
        self = cls(snapshot, session_id)
        try:
            answer = await self._ready
            if not answer["ready"]:
                kind = "init" if "cause" in answer else "sandbox"
                raise SystemFault(kind, f"server {self.name!r}: {answer.get('cause') or await self._cause()}")
            self._pid = int(answer["pid"])
            if snapshot.in_child:
                await self._initialise(snapshot)
        except BaseException:
            self.kill()
            await self.close()
            raise
        return self

    async def _initialise(self, snapshot: Snapshot) -> None:
        init = reserved.call_of(self.tools, reserved.INIT, {"config": snapshot.config}, self._session_id)
        self.init_result = await reserved.initialise(self, init, snapshot.warm.limits.start_deadline_seconds)
        self.initial_state = await self.state()

    @property
    def pids(self) -> list[int]:
        return [self._pid]

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        return await self._request({"tool": tool, "arguments": arguments})

    async def state(self) -> dict[str, Any]:
        call = reserved.call_of(self.tools, reserved.STATE, {}, self._session_id)
        if call is None:
            return {}
        text, is_error = await self._request({**call, "limit": self._snapshot.warm.limits.max_state_bytes})
        return reserved.parse_state(self.name, text, is_error)

    def kill(self) -> None:
        self._snapshot.kill_child(self._fork_name)

    async def close(self) -> None:
        if not self._snapshot.in_child:
            self.kill()
        self._link.close()
        self._fail()
        try:
            async with asyncio.timeout(CLOSE_GRACE_SECONDS):
                await asyncio.shield(self._exited)
        except TimeoutError:
            self.kill()
            await asyncio.shield(self._exited)

    async def _request(self, message: dict[str, Any]) -> tuple[str, bool]:
        if self._over:
            raise SystemFault("sandbox", f"server {self.name!r}: {await self._cause()}")
        self._seq += 1
        self._reply = asyncio.get_running_loop().create_future()
        self._link.send({"seq": self._seq, **message})
        reply = await self._reply
        if "text" in reply:
            return reply["text"], reply["is_error"]
        raise SystemFault("sandbox", f"server {self.name!r}: {reply.get('fault') or await self._cause()}")

    def _on_message(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(message)
        elif self._reply is not None and not self._reply.done() and message["seq"] == self._seq:
            self._reply.set_result(message)

    def _fail(self, cause: str = "") -> None:
        self._over = True
        if not self._ready.done():
            self._ready.set_result({"ready": False})
        if self._reply is not None and not self._reply.done():
            self._reply.set_result({"fault": cause} if cause else {})

    async def _cause(self) -> str:
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                report = await asyncio.shield(self._exited)
        except TimeoutError:
            return "its socket closed while its process lives on"
        return f"its process ended: {describe_exit(report)}"
