from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import fastmcp
import pytest
from mcp.server import lowlevel

from stateward.sandbox.inside.locate import NotForkable, Target, find_server, has_own_lifespan, low_level, parse_command

try:
    from mcp.server.mcpserver import MCPServer
except ModuleNotFoundError:
    from mcp.server.fastmcp import FastMCP as MCPServer

PY = sys.executable


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ((PY, "-m", "a.b"), Target(PY, "module", "a.b", ())),
        ((PY, "-u", "-m", "a.b", "--x", "1"), Target(PY, "module", "a.b", ("--x", "1"))),
        (
            ("python", "server.py", "--transport", "stdio"),
            Target("python", "file", "server.py", ("--transport", "stdio")),
        ),
        (("/opt/env/bin/python3.12", "-B", "s.py"), Target("/opt/env/bin/python3.12", "file", "s.py", ())),
        ((PY, "-I", "-m", "a.b"), None),
        ((PY, "-c", "print()"), None),
        ((PY, "-m"), None),
        ((PY,), None),
        (("node", "server.js"), None),
        (("uvx", "some-server.py"), None),
        ((), None),
    ],
)
def test_only_plain_python_commands_have_a_target(command: tuple[str, ...], target: Target | None) -> None:
    assert parse_command(command) == target


def module(**names: Any) -> ModuleType:
    made = ModuleType("some_server")
    vars(made).update(names)
    return made


def test_the_server_object_is_found_by_usual_name_or_by_being_the_only_one() -> None:
    one, two = fastmcp.FastMCP("one"), MCPServer("two")
    assert find_server(module(server=two, other=one)) is two
    assert find_server(module(odd=one, number=3, cls=fastmcp.FastMCP)) is one
    assert find_server(module(odd=one, alias=one)) is one
    low = lowlevel.Server("low")
    assert find_server(module(anything=low)) is low


def test_no_server_object_or_several_cannot_be_forked() -> None:
    with pytest.raises(NotForkable, match="no MCP server object"):
        find_server(module(mcp="not one", server=fastmcp.FastMCP))
    with pytest.raises(NotForkable, match="2 MCP server objects"):
        find_server(module(one=fastmcp.FastMCP("one"), two=fastmcp.FastMCP("two")))


@pytest.mark.parametrize("make", [fastmcp.FastMCP, MCPServer, lowlevel.Server])
def test_an_authors_lifespan_is_told_from_the_sdks(make: Any) -> None:
    @asynccontextmanager
    async def lifespan(_server: Any) -> Any:
        yield {}

    assert low_level(make("x")) is not None
    assert not has_own_lifespan(make("x"))
    assert has_own_lifespan(make("x", lifespan=lifespan))
