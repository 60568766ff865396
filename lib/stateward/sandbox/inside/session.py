"""A real MCP session with a server object in this process.

The server's own ``run`` serves one client over in-memory streams, exactly as it does over stdio: argument validation,
error reporting, `Context`, session id and lifespan are the SDK's. What is missing is the pipe and the text. The
protocol messages are built by hand because this half must work with every version of both SDKs (``mcp`` 1.20 to 2.x;
``fastmcp`` 2.10 to 4.x), whose client classes differ and whose wire messages do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from typing import Any

from stateward.sandbox.inside.locate import low_level

#: The newest protocol version that every supported SDK version speaks.
_PROTOCOL = "2025-06-18"


#: What stands for a part that is not text, on a line of its own.
_HIDDEN = re.compile(r"^\[(?:image|audio|resource|resource_link): [^\]\n]*\]$", re.MULTILINE)


class SessionError(Exception):
    """The server's run ended, or it answered with a protocol error."""


class ProtocolError(SessionError):
    """The server answered a request with a JSON-RPC error; the text is the server's own."""


class Session:
    """One client session; an async context manager. Requests are made one at a time."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._low = low_level(server)
        self._stack = contextlib.AsyncExitStack()
        self._last_id = 0

    async def __aenter__(self) -> Session:
        import anyio
        from mcp.shared.message import SessionMessage

        self._wrap, self._parse = SessionMessage, _message_parser()
        self._to_server, from_client = anyio.create_memory_object_stream[Any](math.inf)
        to_client, self._from_server = anyio.create_memory_object_stream[Any](math.inf)
        # fastmcp 3 and later keep the lifespan outside the low-level server; entering it twice is counted there.
        lifespan = getattr(self._server, "_lifespan_manager", None)
        if lifespan is not None:
            await self._stack.enter_async_context(lifespan())

        async def serve() -> None:
            try:
                await self._low.run(from_client, to_client, self._low.create_initialization_options())
            finally:
                to_client.close()

        self._run = asyncio.get_running_loop().create_task(serve())
        client = {"name": "stateward", "version": "1"}
        await self._request("initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._to_server.close()  # the end of input ends the server's run, as a closed stdin would
        try:
            await asyncio.wait_for(asyncio.shield(self._run), timeout=2.0)
        except TimeoutError:
            self._run.cancel()
            await asyncio.wait([self._run])
        finally:
            await self._stack.aclose()

    async def list_tools(self) -> list[dict[str, Any]]:
        """Every tool, the reserved ones too, as {name, description, inputSchema}."""
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            for tool in page["tools"]:
                tools.append({key: tool.get(key) for key in ("name", "description", "inputSchema")})
            cursor = page.get("nextCursor")
            if not cursor:
                return tools

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """(text of the result, whether the server reports it as an error).

        Several text parts are joined with newlines; a part that is not text is named in brackets. A JSON-RPC error is
        the server's report too: some versions answer an unknown tool in that way.
        """
        try:
            result = await self._request("tools/call", {"name": name, "arguments": arguments})
        except ProtocolError as error:
            return str(error), True
        return result_text(result), bool(result.get("isError"))

    def _send(self, body: dict[str, Any]) -> None:
        self._to_server.send_nowait(self._wrap(self._parse({"jsonrpc": "2.0", **body})))

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        import anyio

        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        while True:
            try:
                received = await self._from_server.receive()
            except anyio.EndOfStream:
                raise SessionError(f"the server's run ended during {method}: {self._ending()}") from None
            message = received.message
            message = getattr(message, "root", message)  # mcp 1.x wraps the union in a root model
            if hasattr(message, "method"):
                if hasattr(message, "id"):  # the server asks its client for sampling, roots, …: this client has none
                    self._send({"id": message.id, "error": {"code": -32601, "message": "not supported by this client"}})
                continue
            if message.id != self._last_id:
                continue
            if hasattr(message, "error"):
                raise ProtocolError(message.error.message)
            result: dict[str, Any] = message.result
            return result

    def _ending(self) -> str:
        if not self._run.done() or self._run.cancelled():
            return "it closed its output"
        error = self._run.exception()
        while isinstance(error, BaseExceptionGroup) and error.exceptions:  # anyio task groups wrap the cause
            error = error.exceptions[0]
        return f"{type(error).__name__}: {error}" if error is not None else "it returned"


def _message_parser() -> Any:
    from mcp import types

    adapter = getattr(types, "jsonrpc_message_adapter", None)  # mcp 2.x
    return adapter.validate_python if adapter is not None else types.JSONRPCMessage.model_validate  # type: ignore[attr-defined]


def result_text(result: dict[str, Any]) -> str:
    """The text of a result, a JSON object: its parts, joined with newlines; what is not text is named in brackets.

    Structured content stands in for parts that say nothing. Where both are there the parts are the server's own
    summary for the model. The SDKs put what is no object under ``result``, and send no part for an empty list.
    """
    text = "\n".join(_text(part) for part in result.get("content") or ())
    value = result.get("structuredContent")
    if text or value is None:
        return text
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]
    return "" if value is None or value == "" else json.dumps(value, ensure_ascii=False)


def hidden_parts(text: str) -> int:
    """How many parts of a result only their names stand for in `text`."""
    return len(_HIDDEN.findall(text))


def _text(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part.get("text", ""))
    resource = part.get("resource")
    if isinstance(resource, dict) and "text" in resource:
        return str(resource["text"])
    return f"[{part.get('type')}: {part.get('mimeType') or part.get('uri') or 'no text'}]"
