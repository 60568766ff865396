"""A desk as an MCP server of the official SDK, 1.20 or newer and 2.x."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from typing import Any

from stateward.practice.desk import Desk


def _server_class() -> Any:
    """The SDK's decorated server: `MCPServer` since mcp 2, `FastMCP` before."""
    try:
        return importlib.import_module("mcp.server.mcpserver").MCPServer
    except ModuleNotFoundError:
        return importlib.import_module("mcp.server.fastmcp").FastMCP


def tool_server(name: str, desk: Desk) -> Any:
    """A server called `name` with the desk's tools and the three reserved tools that open, read and close a world.

    Every tool is a coroutine: the SDK runs plain functions in worker threads, and a process with threads cannot be
    forked safely, nor does SQLite let its connections change threads. Results are plain text without a structured copy.
    """
    server = _server_class()(name)

    def add(tool_name: str, description: str, run: Any) -> None:
        server.tool(name=tool_name, description=description, structured_output=False)(run)

    def add_desk_tool(tool_name: str) -> None:
        method = getattr(desk, tool_name)

        @functools.wraps(method)
        async def run(**arguments: Any) -> str:
            return desk.call(tool_name, arguments)

        # Annotations are strings in the desk's module; the SDK would look their names up in this one.
        signature = inspect.signature(method, eval_str=True).replace(return_annotation=str)
        run.__signature__ = signature  # type: ignore[attr-defined]
        add(tool_name, inspect.getdoc(method) or "", run)

    async def init(config: dict[str, Any]) -> str:
        return json.dumps(desk.init(config), ensure_ascii=False)

    async def geteffects() -> str:
        return json.dumps(desk.state(), ensure_ascii=False)

    async def teardown() -> str:
        desk.close()
        return "{}"

    for tool_name in desk.tool_names():
        add_desk_tool(tool_name)
    add("__reserved__init", "Start a world from its configuration.", init)
    add("__reserved__geteffects", "The state of the world.", geteffects)
    add("__reserved__teardown", "Forget the world.", teardown)
    return server
