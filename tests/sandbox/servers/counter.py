"""A tool server with one number."""

import json
import os

from mcp_server_class import Server

server = Server("counter")
value = 0


@server.tool(name="__reserved__init")
async def initialise(config: dict) -> str:
    global value
    value = config.get("start", 0)
    return json.dumps({})


@server.tool(name="__reserved__geteffects")
async def effects() -> str:
    return json.dumps({"value": value})


@server.tool()
async def add(amount: int) -> str:
    """Add."""
    global value
    value += amount
    return json.dumps({"value": value})


@server.tool()
async def pid() -> int:
    """The server's process id."""
    return os.getpid()


if __name__ == "__main__":
    server.run("stdio")
