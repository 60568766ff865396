"""The tool servers as anybody runs them: alone, over stdio, through the official client."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from stateward.practice.orders import OrderDesk
from stateward.tasks.task import Task

RESERVED = {"__reserved__init", "__reserved__geteffects", "__reserved__teardown"}


def text_of(result: Any) -> str:
    (part,) = result.content
    return str(part.text)


@pytest.mark.parametrize("domain", ["orders", "library", "clinic"])
async def test_alone_over_stdio(domain: str, tasks: dict[str, Task]) -> None:
    task = next(t for t in tasks.values() if t.domain == domain)
    command = StdioServerParameters(command=sys.executable, args=["-m", f"stateward.practice.servers.{domain}"])
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert names == RESERVED | {tool.name for tool in task.tools}
        result = json.loads(text_of(await session.call_tool("__reserved__init", {"config": task.world[domain]})))
        assert result["status"] == "ok"
        assert json.loads(text_of(await session.call_tool("__reserved__geteffects", {}))) == result["initial"]
        if domain == "orders":
            desk = OrderDesk(task.world["orders"])
            for name, arguments in (
                ("get_order", {"order_id": task.world["orders"]["orders"][0]["id"]}),
                ("get_order", {"order_id": "ORD-1"}),
                ("change_address", {"order_id": task.world["orders"]["orders"][0]["id"], "address": "1 Oak Lane"}),
            ):
                assert text_of(await session.call_tool(name, arguments)) == desk.call(name, arguments)
        assert text_of(await session.call_tool("__reserved__teardown", {})) == "{}"
