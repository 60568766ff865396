"""One episode's world: the servers' state, and the calls that change it, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from stateward.errors import SystemFault, nearest
from stateward.sandbox.limits import SandboxLimits
from stateward.sandbox.server import ServerSession
from stateward.sandbox.state import state_hash
from stateward.tasks.task import ToolSpec


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a call gave. `is_error`: the tool reported it, or there is no such tool; the model sees `text` either way.

    `seconds` is the wall clock of the call itself, without the wait for earlier calls.
    """

    text: str
    is_error: bool
    seconds: float


class Begun(Protocol):
    """A server that has its initial state, or the snapshot of one."""

    @property
    def name(self) -> str: ...

    @property
    def init_result(self) -> dict[str, Any]: ...

    @property
    def initial_state(self) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Scene:
    """How a world begins.

    Attributes:
        tools: what the model may call, as it sees it.
        init_result / initial_state: by server.
        initial_state_hash: 16 hex digits.
    """

    tools: list[ToolSpec]
    init_result: dict[str, dict[str, Any]]
    initial_state: dict[str, dict[str, Any]]
    initial_state_hash: str

    @classmethod
    def of(cls, tools: list[ToolSpec], servers: Sequence[Begun]) -> Scene:
        state = {server.name: server.initial_state for server in servers}
        return cls(
            tools=tools,
            init_result={server.name: server.init_result for server in servers},
            initial_state=state,
            initial_state_hash=state_hash(state),
        )


class World:
    """Opened by `Sandbox.open`; an async context manager. What it begins with (see `Scene`) are its attributes too."""

    def __init__(
        self,
        servers: Sequence[ServerSession],
        tools: list[ToolSpec],
        owner: dict[str, int],
        limits: SandboxLimits,
        on_closed: Callable[[], None],
    ) -> None:
        self.scene = scene = Scene.of(tools, servers)
        self.tools, self.init_result = scene.tools, scene.init_result
        self.initial_state, self.initial_state_hash = scene.initial_state, scene.initial_state_hash
        self._servers, self._owner, self._limits, self._on_closed = list(servers), owner, limits, on_closed
        self._lock = asyncio.Lock()
        self._calls: dict[str, tuple[str, dict[str, Any], asyncio.Task[ToolResult]]] = {}
        self._broken = ""
        self._closing: asyncio.Task[None] | None = None
        self.last_used = time.monotonic()

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def busy(self) -> bool:
        """Whether a call or an extraction is going on."""
        return self._lock.locked()

    @property
    def pids(self) -> list[int]:
        """The processes that belong to this world alone."""
        return [pid for server in self._servers for pid in server.pids]

    async def call(
        self, name: str, arguments: dict[str, Any], *, call_id: str, deadline: float | None = None
    ) -> ToolResult:
        """Call a tool, after the calls made earlier.

        A call is applied at most once: a repeated `call_id` gives the first call's result, or waits for it. If the
        caller is cancelled the call goes on, and its result is kept for a repetition.

        Args:
            deadline: seconds from now for the wait in the queue and the call together; default `tool_deadline_seconds`.

        Raises:
            SystemFault: "tool_timeout" after the deadline: if the call had begun, nobody knows what it did, and the
                world is destroyed. "sandbox" if a server died or the world is closed.
            ValueError: `call_id` was used for another call.
        """
        known = self._calls.get(call_id)
        if known is None:
            seconds = self._limits.tool_deadline_seconds if deadline is None else deadline
            task = asyncio.create_task(self._guarded(name, arguments, seconds))
            task.add_done_callback(_retrieve)
            self._calls[call_id] = known = (name, arguments, task)
        if known[:2] != (name, arguments):
            raise ValueError(f"call id {call_id!r} was used for {known[0]} with {known[1]}")
        return await asyncio.shield(known[2])

    async def state(self) -> dict[str, Any]:
        """The current state by server. Raises SystemFault "tool_timeout" or "sandbox"."""
        async with self._turn("the state's extraction", self._limits.tool_deadline_seconds):
            return {server.name: await server.state() for server in self._servers}

    async def aclose(self) -> None:
        """Destroy the world; returns when its processes are gone. May be called again."""
        if self._closing is None:
            self._broken = self._broken or "the world is closed"
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def destroy(self, cause: str) -> None:
        """Kill the world's processes now; later calls raise SystemFault "sandbox" with `cause`."""
        self._broken = self._broken or cause
        for server in self._servers:
            server.kill()

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(server.close() for server in self._servers))
        finally:
            self._on_closed()

    async def _guarded(self, name: str, arguments: dict[str, Any], deadline: float) -> ToolResult:
        position = self._owner.get(name)
        if position is None:
            if self._broken:
                raise SystemFault("sandbox", self._broken)
            text = f"There is no tool {name!r}; {nearest(name, self._owner)}"
            return ToolResult(text=text, is_error=True, seconds=0.0)
        async with self._turn(f"the tool {name!r}", deadline):
            began = time.perf_counter()
            text, is_error = await self._servers[position].call(name, arguments)
            return ToolResult(text=text, is_error=is_error, seconds=time.perf_counter() - began)

    @asynccontextmanager
    async def _turn(self, what: str, deadline: float) -> AsyncIterator[None]:
        """The exclusive use of the world, within a deadline that covers the wait for it."""
        began = False
        try:
            async with asyncio.timeout(deadline), self._lock:
                if self._broken:
                    raise SystemFault("sandbox", self._broken)
                began = True
                self.last_used = time.monotonic()
                yield
                self.last_used = time.monotonic()
        except TimeoutError:
            if self._broken:
                raise SystemFault("sandbox", self._broken) from None
            if not began:
                cause = f"{what} was not begun within {deadline:g} s: earlier calls of this world took them"
                raise SystemFault("tool_timeout", cause) from None
            cause = f"{what} took longer than {deadline:g} s"
            self.destroy(f"the world was destroyed because {cause}")  # nobody knows what the call did, or will do
            raise SystemFault("tool_timeout", cause) from None
        except asyncio.CancelledError:
            if began:
                self.destroy(f"the world was destroyed because {what} was cancelled")
            raise


def _retrieve(task: asyncio.Task[ToolResult]) -> None:
    """Mark a kept result's exception as seen: its caller may have been cancelled."""
    if not task.cancelled():
        task.exception()
