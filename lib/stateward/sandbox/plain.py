"""A tool server that is not forked: an MCP process over stdio, or a remote endpoint, through the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.sandbox import reserved
from stateward.sandbox.inside import workdir
from stateward.sandbox.inside.children import tail
from stateward.sandbox.inside.session import result_text
from stateward.sandbox.limits import SandboxLimits
from stateward.sandbox.parent_handle import CLOSE_GRACE_SECONDS
from stateward.sandbox.warm import LIBRARY, server_environment
from stateward.tasks.task import ServerSpec

#: JSON-RPC codes with which the SDK's client reports its own end: connection closed, request timed out.
_CONNECTION_CODES = (-32000, -32001, 408)
_TRANSPORTS = ("streamable-http", "sse")


class PlainServer:
    """One MCP client session of one world. Make one with `start`.

    The SDK's transports are context managers that must be left by the task that entered them, so one task holds them
    and works through a queue of requests.
    """

    def __init__(self, spec: ServerSpec, limits: SandboxLimits, session_id: str, scratch: Path) -> None:
        self.name = spec.name
        self.tools: list[dict[str, Any]] = []
        self.init_result: dict[str, Any] = {}
        self.initial_state: dict[str, Any] = {}
        self._spec, self._limits, self._session_id, self._scratch = spec, limits, session_id, scratch
        self._log = os.memfd_create("stateward-log", os.MFD_CLOEXEC)
        self._requests: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[tuple[str, bool]]] | None] = asyncio.Queue()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: BaseException | None = None
        self._pid_file = -1
        self._owner = asyncio.create_task(self._own())

    @classmethod
    async def start(
        cls, spec: ServerSpec, config: dict[str, Any], limits: SandboxLimits, session_id: str, scratch: Path
    ) -> PlainServer:
        """Connect and initialise. A process works in a folder of its own inside `scratch`.

        Raises:
            UserError: an unknown kind or transport.
            SystemFault: "sandbox" if it cannot be reached, "init" if its init fails.
        """
        if spec.kind not in ("mcp-process", "mcp-remote"):
            raise UserError(f"server {spec.name!r} has the type {spec.kind!r}", "", "use mcp-process or mcp-remote")
        if spec.kind == "mcp-remote" and spec.transport not in _TRANSPORTS:
            raise UserError(
                f"server {spec.name!r} has the transport {spec.transport!r}", "", f"use one of {', '.join(_TRANSPORTS)}"
            )
        self = cls(spec, limits, session_id, scratch)
        try:
            await self._ready
            init = reserved.call_of(self.tools, reserved.INIT, {"config": config}, session_id)
            self.init_result = await reserved.initialise(self, init, limits.start_deadline_seconds)
            self.initial_state = await self.state()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def pids(self) -> list[int]:
        return []

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        text, is_error = await self._request({"tool": tool, "arguments": arguments})
        size, limit = len(text.encode(errors="surrogatepass")), self._limits.max_output_bytes
        if size > limit and not tool.startswith(reserved.PREFIX):
            return f"The tool's output of {size} bytes is over the limit of {limit}. Ask for less.", True
        return text, is_error

    async def state(self) -> dict[str, Any]:
        call = reserved.call_of(self.tools, reserved.STATE, {}, self._session_id)
        if call is None:
            return {}
        text, is_error = await self._request(call)
        return reserved.parse_state(self.name, text, is_error)

    def kill(self) -> None:
        self._owner.cancel()

    async def close(self) -> None:
        teardown = reserved.call_of(self.tools, reserved.TEARDOWN, {}, self._session_id)
        if teardown is not None and not self._owner.done() and not self._owner.cancelling():
            with contextlib.suppress(SystemFault, TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_SECONDS):
                    await self._request(teardown)
        self._requests.put_nowait(None)
        _done, pending = await asyncio.wait([self._owner], timeout=CLOSE_GRACE_SECONDS)
        if pending:
            self._owner.cancel()
            await asyncio.wait([self._owner])
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    async def _request(self, call: dict[str, Any]) -> tuple[str, bool]:
        if self._owner.done():
            raise self._fault()
        answer: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait((call, answer))
        ends: list[asyncio.Future[Any]] = [answer, self._owner]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise self._fault()

    def _fault(self) -> SystemFault:
        error: BaseException | None = self._error
        while isinstance(error, BaseExceptionGroup):  # the SDK's task groups wrap the cause
            error = error.exceptions[0]
        said = tail(self._log) if self._log >= 0 else ""
        what = f"{type(error).__name__}: {error}" if error else "its connection ended"
        return SystemFault("sandbox", f"server {self.name!r}: {what}" + (f"; last output: {said}" if said else ""))

    async def _own(self) -> None:
        try:
            async with self._connected() as session:
                await session.initialize()
                self.tools = await _list_tools(session)
                self._ready.set_result(None)
                while (item := await self._requests.get()) is not None:
                    call, answer = item
                    result = await _called(session, call)
                    if not answer.done():
                        answer.set_result(result)
        except BaseException as error:  # noqa: BLE001 - attributed in `_fault`, by whoever waits for an answer
            self._error = error
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._fault())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        from mcp import ClientSession

        spec = self._spec
        if spec.kind == "mcp-process":
            from mcp.client.stdio import StdioServerParameters, stdio_client

            limits = self._limits
            # Sets the limits on itself, then becomes the server: the SDK offers no hook between fork and exec.
            code = (
                f"import sys; sys.path.append({LIBRARY!r}); from stateward.sandbox.inside.bounds import become; "
                f"become({os.getpid()}, {limits.world_memory_mb}, {limits.world_cpu_seconds}, {limits.max_file_mb}, "
                "sys.argv[1:])"
            )
            command = [_absolute(part, spec.cwd or os.getcwd()) for part in spec.command]
            with (
                os.fdopen(os.dup(self._log), "w") as log,
                tempfile.TemporaryDirectory(prefix="process-", dir=self._scratch, ignore_cleanup_errors=True) as folder,
            ):
                if spec.cwd:
                    workdir.fill(spec.cwd, folder, shared=True)
                parameters = StdioServerParameters(
                    command=sys.executable, args=["-c", code, *command], env=server_environment(spec), cwd=folder
                )
                async with stdio_client(parameters, errlog=log) as (read, write), ClientSession(read, write) as session:
                    yield session
        elif spec.transport == "sse":
            from mcp.client.sse import sse_client

            async with (
                sse_client(spec.endpoint, headers=spec.headers, timeout=spec.timeout) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                yield session
        else:
            async with (
                _streamable_http(spec, self._limits) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                yield session


def _absolute(part: str, folder: str) -> str:
    """A part of a command, absolute if it names a file relative to `folder`: the command runs elsewhere."""
    file = os.path.abspath(os.path.join(folder, part))
    return file if (os.sep in part or part.endswith(".py")) and os.path.isfile(file) else part


@asynccontextmanager
async def _streamable_http(spec: ServerSpec, limits: SandboxLimits) -> AsyncIterator[Any]:
    from mcp.client import streamable_http

    older = getattr(streamable_http, "streamablehttp_client", None)  # mcp 1.x
    if older is not None:
        async with older(spec.endpoint, headers=spec.headers, timeout=spec.timeout) as streams:
            yield streams
        return
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with create_mcp_http_client(headers=spec.headers) as client:
        client.timeout = type(client.timeout)(spec.timeout, read=max(client.timeout.read or 0.0, spec.timeout))
        connect: Any = streamable_http.streamable_http_client
        # Newer SDKs have a bound of 1 MB, which breaks the connection; ours make a large result the tool's error.
        bound = "max_sse_event_size"
        options = {bound: 2 * limits.max_state_bytes} if bound in inspect.signature(connect).parameters else {}
        async with connect(spec.endpoint, http_client=client, **options) as streams:
            yield streams


async def _called(session: Any, call: dict[str, Any]) -> tuple[str, bool]:
    """(text, is_error). A JSON-RPC error is the server's report too, unless it says that the connection is gone."""
    try:
        result = await session.call_tool(call["tool"], call["arguments"])
    except Exception as error:
        report = getattr(error, "error", None)  # McpError of mcp 1.x, MCPError of 2.x
        if report is None or report.code in _CONNECTION_CODES:
            raise
        return str(report.message), True
    dumped = result.model_dump(mode="json", by_alias=True)  # field names differ between mcp 1.x and 2.x, aliases do not
    return result_text(dumped), bool(dumped.get("isError"))


async def _list_tools(session: Any) -> list[dict[str, Any]]:
    from mcp.types import PaginatedRequestParams

    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        params = PaginatedRequestParams(cursor=cursor) if cursor else None
        page = (await session.list_tools(params=params)).model_dump(mode="json", by_alias=True)
        tools += [{key: tool.get(key) for key in ("name", "description", "inputSchema")} for tool in page["tools"]]
        cursor = page.get("nextCursor")
        if not cursor:
            return tools
