"""A tool server that opens what must not cross a fork, when and where its arguments say: at import or in init."""

import json
import os
import socket
import sqlite3
import sys
import threading
import time

from mcp_server_class import Server

mcp = Server("careless")
held: list[object] = []
trace = os.environ.get("TRACE", "")
pid_of_init = 0


def note(text: str) -> None:
    with open(trace, "a") as f:
        f.write(text + "\n")


def open_it(what: str) -> None:
    if what == "thread":
        thread = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
        thread.start()
        held.append(thread)
    elif what == "socket":
        held.append(socket.socket())
    elif what == "sqlite":
        held.append(sqlite3.connect(os.environ["DATABASE"], check_same_thread=False))


when, what = sys.argv[1:] or ("", "")
if when == "import":
    open_it(what)


@mcp.tool(name="__reserved__init")
def initialise(config: dict) -> str:
    global pid_of_init
    pid_of_init = os.getpid()
    if when == "init":
        open_it(what)
    note("init")
    return json.dumps({})


@mcp.tool(name="__reserved__geteffects")
def effects() -> str:
    return json.dumps({"held": len(held)})


@mcp.tool(name="__reserved__teardown")
def tear_down() -> str:
    note("teardown")
    return json.dumps({"status": "ok"})


@mcp.tool()
def own_init() -> bool:
    """Whether init ran in this process."""
    return pid_of_init == os.getpid()


@mcp.tool()
def hang() -> str:
    """Never answer."""
    time.sleep(3600)
    return ""


if __name__ == "__main__":
    mcp.run("stdio")
