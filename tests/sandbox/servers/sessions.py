"""A fastmcp server whose state belongs to the MCP session, with a lifespan of its own."""

import json
import os
from contextlib import asynccontextmanager

from fastmcp import Context, FastMCP

texts: dict[str, list[str]] = {}
entered: list[int] = []


def leave_a_trace() -> None:
    with open(os.environ["TRACE"], "a") as f:
        f.write("left\n")


@asynccontextmanager
async def lifespan(server):
    entered.append(os.getpid())
    yield {"entered": True}
    leave_a_trace()


mcp = FastMCP("sessions", lifespan=lifespan if os.environ.get("LIFESPAN") else None)


@mcp.tool(name="__reserved__init")
async def initialise(session_id: str, config: dict, ctx: Context) -> dict:
    texts[ctx.session_id] = [session_id]
    return {"status": "ok", "session": session_id}


@mcp.tool(name="__reserved__geteffects")
async def effects(session_id: str, ctx: Context) -> str:
    first, *rest = texts[ctx.session_id]
    assert first == session_id
    return json.dumps({"texts": rest, "lifespans_here": entered.count(os.getpid())})


@mcp.tool()
async def say(text: str, ctx: Context) -> str:
    """Say something."""
    await ctx.info("a log message to the client, which nobody reads")
    texts[ctx.session_id].append(text)
    return "said"


if __name__ == "__main__":
    mcp.run("stdio")
