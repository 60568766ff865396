"""A tool server over SQLite that re-makes its connection as docs/tool_servers.md says."""

import json
import sqlite3

from mcp_server_class import Server

mcp = Server("ledger")
_db = sqlite3.connect(":memory:", check_same_thread=False)
_image = b""


def __stateward_before_fork__() -> None:
    global _image
    _image = _db.serialize()
    _db.close()


def __stateward_after_fork__() -> None:
    global _db
    _db = sqlite3.connect(":memory:", check_same_thread=False)
    _db.deserialize(_image)


@mcp.tool(name="__reserved__init")
def initialise(config: dict) -> str:
    _db.execute("CREATE TABLE entry (amount INTEGER)")
    _db.executemany("INSERT INTO entry VALUES (?)", [(n,) for n in config["amounts"]])
    _db.commit()
    return json.dumps({})


@mcp.tool(name="__reserved__geteffects")
def effects() -> str:
    return json.dumps({"amounts": [row[0] for row in _db.execute("SELECT amount FROM entry ORDER BY rowid")]})


@mcp.tool()
def book(amount: int) -> str:
    """Book an amount."""
    with _db:
        _db.execute("INSERT INTO entry VALUES (?)", (amount,))
    return "booked"


if __name__ == "__main__":
    mcp.run("stdio")
