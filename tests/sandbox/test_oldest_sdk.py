"""Servers under the oldest SDKs that are supported run forked; this process has the newest."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.sandbox import Sandbox
from stateward.tasks.task import ServerSpec, Task

pytestmark = pytest.mark.slow
#: pydantic is of the same time: the newest breaks this fastmcp.
OLDEST = ("mcp==1.20.0", "fastmcp==2.10.6", "pydantic==2.11.10")
SERVER = """
    from fastmcp import FastMCP

    mcp = FastMCP("shelf")
    things = {}

    @mcp.tool(name="__reserved__init")
    def init(config: dict) -> dict:
        things.update(config)
        return {"status": "ok", "count": len(things)}

    @mcp.tool(name="__reserved__geteffects")
    def effects() -> dict:
        return {"things": things}

    @mcp.tool
    def put(name: str, number: int = 1) -> str:
        '''Put something on the shelf.'''
        things[name] = number
        return "put"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with the oldest SDKs, made with uv."""
    folder = tmp_path_factory.mktemp("oldest") / "venv"
    uv = [sys.executable, "-m", "uv", "-q"]
    made = subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"uv cannot make an environment: {made.stderr.decode()[-300:]}")
    install = [*uv, "pip", "install", "--python", str(folder / "bin" / "python"), *OLDEST]
    done = subprocess.run(install, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(OLDEST)} cannot be installed here: {done.stderr.decode()[-300:]}")
    return str(folder / "bin" / "python")


async def test_a_fastmcp_server(python: str, task: Callable[..., Task], tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(textwrap.dedent(SERVER))
    spec = ServerSpec(name="shelf", command=(python, str(tmp_path / "shelf.py")))
    async with Sandbox() as sandbox:
        for _ in range(2):
            async with await sandbox.open(task(spec, world={"shelf": {"cup": 2}})) as world:
                assert world.init_result == {"shelf": {"count": 1}}
                assert [tool.name for tool in world.tools] == ["put"]
                assert (await world.call("put", {"name": "jar"}, call_id="1")).text == "put"
                assert (await world.call("put", {"number": "many"}, call_id="2")).is_error
                assert await world.state() == {"shelf": {"things": {"cup": 2, "jar": 1}}}
        assert sandbox.explain() == {"shelf": "forked"}


async def test_a_server_of_the_official_sdk(
    python: str, spec: Callable[..., ServerSpec], task: Callable[..., Task]
) -> None:
    notes = spec()
    old = ServerSpec(name="notes", command=(python, *notes.command[1:]))
    async with Sandbox() as sandbox, await sandbox.open(task(old, world={"notes": {"notes": {"a": "1"}}})) as world:
        assert (await world.call("append", {"key": "a", "text": "2"}, call_id="1")).text == "12"
        assert (await world.call("fail", {}, call_id="2")).is_error
        assert (await world.call("refuse", {}, call_id="3")).is_error
        assert await world.state() == {"notes": {"notes": {"a": "12"}}}
        assert sandbox.explain() == {"notes": "forked"}
