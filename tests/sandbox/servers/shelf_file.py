"""A shelf that is kept in files, and initialised only where a row is missing. SHELF_FOLDER: where; empty: here."""

import json
import os
from pathlib import Path

from fastmcp import FastMCP

mcp = FastMCP("shelf_file")


def store() -> Path:
    return Path(os.environ.get("SHELF_FOLDER", "")) / "shelf.json"


@mcp.tool(name="__reserved__init")
async def init(config: dict) -> str:
    held = json.loads(store().read_text()) if store().exists() else {}
    store().write_text(json.dumps(config | held))
    return json.dumps({"status": "ok"})


@mcp.tool(name="__reserved__geteffects")
async def effects() -> str:
    return store().read_text()


@mcp.tool
async def take(thing: str) -> str:
    held = json.loads(store().read_text())
    held[thing] -= 1
    store().write_text(json.dumps(held))
    return "taken"


@mcp.tool
async def label() -> str:
    return store().with_name("label.txt").read_text()


if __name__ == "__main__":
    mcp.run()
