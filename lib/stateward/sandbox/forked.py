"""A fork of a snapshot: one tool server of one world."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from stateward.errors import SystemFault
from stateward.sandbox import reserved
from stateward.sandbox.inside import wire
from stateward.sandbox.link import Link
from stateward.sandbox.parent_handle import CLOSE_GRACE_SECONDS, REPORT_SECONDS, describe_exit
from stateward.sandbox.warm import WarmParent


class ForkSource(Protocol):
    """What a fork needs of the snapshot that it is made from.

    Attributes:
        config: the initial state that the server's init gets.
        in_child: why init runs in every fork; empty where it ran in the snapshot.
        init_result, initial_state: of the snapshot's own init, where it ran there.
    """

    warm: WarmParent
    config: dict[str, Any]
    in_child: str
    init_result: dict[str, Any]
    initial_state: dict[str, Any]

    def start_child(self, name: str, message: dict[str, Any], fd: int) -> asyncio.Future[dict[str, Any]]: ...

    def kill_child(self, name: str) -> None: ...


class ForkedServer:
    """A fork of a snapshot: one server of one world. Make one with `start`."""

    def __init__(self, snapshot: ForkSource, session_id: str) -> None:
        warm, limits = snapshot.warm, snapshot.warm.limits
        self._snapshot, self._session_id = snapshot, session_id
        self.name, self.tools = warm.spec.name, warm.tools
        self.init_result, self.initial_state = snapshot.init_result, dict[str, Any]()
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
    async def start(cls, snapshot: ForkSource, session_id: str) -> ForkedServer:
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
                init = reserved.call_of(self.tools, reserved.INIT, {"config": snapshot.config}, session_id)
                self.init_result = await reserved.initialise(self, init, snapshot.warm.limits.start_deadline_seconds)
            # Also where init ran in the snapshot: what a server keeps outside its process may have changed since.
            state = await self._first_state(snapshot.warm.limits.start_deadline_seconds)
            self.initial_state = snapshot.initial_state if state == snapshot.initial_state else state
        except BaseException:
            self.kill()
            await self.close()
            raise
        return self

    async def _first_state(self, deadline: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(deadline):
                return await self.state()
        except TimeoutError:
            said = f"server {self.name!r}: {reserved.STATE} took longer than {deadline:g} s"
            raise SystemFault("init", said) from None

    @property
    def over(self) -> bool:
        """Whether its process is known to be gone."""
        return self._over

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
            if not self._ready.done():  # nobody waits for a world that was given up while it began
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
            async with asyncio.timeout(REPORT_SECONDS):
                report = await asyncio.shield(self._exited)
        except TimeoutError:
            return "its socket closed while its process lives on"
        return f"its process ended: {describe_exit(report)}"
