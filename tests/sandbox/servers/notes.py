"""A tool server of the official SDK whose state is a Python dict; some of its tools misbehave on demand."""

import os
import random
import sys
import threading
import time
from typing import Annotated

from mcp_server_class import ProtocolError, Server
from pydantic import Field

mcp = Server("notes")
notes: dict[str, str] = {}


@mcp.tool(name="__reserved__init")
def initialise(config: dict) -> dict:
    if "refuse" in config:
        raise RuntimeError(config["refuse"])
    if "hang" in config:
        time.sleep(3600)
    if "status" in config:
        return {"status": config["status"]}
    notes.update(config.get("notes", {}))
    return {"status": "ok", "count": len(notes)}


@mcp.tool(name="__reserved__geteffects")
def effects() -> dict:
    return {"notes": notes}


@mcp.tool()
def write(key: Annotated[str, Field(description="Name of the note")], text: str) -> str:
    """Write a note."""
    notes[key] = text
    return "written"


@mcp.tool()
def append(key: str, text: str) -> str:
    """Append to a note."""
    notes[key] = notes.get(key, "") + text
    return notes[key]


@mcp.tool()
def draw() -> str:
    """Random numbers."""
    import numpy

    return f"{random.random()} {numpy.random.random()}"


@mcp.tool()
def fail() -> str:
    """Raise."""
    raise ValueError("no such note")


@mcp.tool()
def refuse() -> str:
    """Answer with an error of the protocol instead of a result."""
    raise ProtocolError(-32602, "not with these arguments")


@mcp.tool()
def hang(seconds: float) -> str:
    """Sleep without giving the loop back."""
    time.sleep(seconds)
    notes["hang"] = "done"
    return "slept"


@mcp.tool()
def crash() -> str:
    """Die with a last word."""
    print("about to crash", file=sys.stderr)
    os._exit(3)


@mcp.tool()
def shout(lines: int) -> str:
    """Print on standard output, which an stdio server must not."""
    for i in range(lines):
        print(f"{{not json {i}")
    os.write(1, b"raw\n")
    return "shouted"


@mcp.tool()
def big(size: int) -> str:
    """Much text."""
    return "x" * size


@mcp.tool()
def echo(value: dict) -> dict:
    """The value itself."""
    return value


@mcp.tool()
def bomb() -> str:
    """Fork for ever."""
    while True:
        os.fork()


@mcp.tool()
def hungry(megabytes: int) -> str:
    """Allocate."""
    return str(len(bytearray(megabytes << 20)))


@mcp.tool()
def spin() -> str:
    """Burn CPU."""
    while True:
        pass


@mcp.tool()
def threaded() -> str:
    """Use a thread."""
    box: list[str] = []
    thread = threading.Thread(target=lambda: box.append("from a thread"))
    thread.start()
    thread.join()
    return box[0]


@mcp.tool()
def scratch(name: str) -> str:
    """Leave a temporary file behind."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix=name, delete=False) as f:
        f.write("left behind")
    return f.name


@mcp.tool()
def pid() -> int:
    """The server's process id."""
    return os.getpid()


@mcp.tool()
def environment(variable: str) -> str:
    """One variable."""
    return os.environ.get(variable, "")


if __name__ == "__main__":
    mcp.run("stdio")
