"""Servers that are not forked answer through the same interface."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from stateward.errors import SystemFault, UserError
from stateward.sandbox import Sandbox, SandboxLimits, state_diff
from stateward.tasks.task import ServerSpec, Task

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]
Spec, Make = Callable[..., ServerSpec], Callable[..., Task]
SERVERS = Path(__file__).parent / "servers"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(SandboxLimits(max_output_bytes=100_000, world_memory_mb=600)) as sandbox:
        yield sandbox


@pytest.fixture(params=["forked", "stdio", "streamable-http", "sse"])
def server(request: pytest.FixtureRequest, spec: Spec) -> Iterator[ServerSpec]:
    how: str = request.param
    if how in ("forked", "stdio"):
        yield spec(fork=how == "forked")
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        path = "/mcp" if how == "streamable-http" else "/sse"
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
        command = [sys.executable, str(SERVERS / "over_http.py"), str(listening.fileno()), how]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()])
    yield spec(kind="mcp-remote", command=(), endpoint=endpoint, transport=how)
    process.terminate()
    process.wait(timeout=20)


async def test_one_interface_whichever_way_a_server_runs(sandbox: Sandbox, task: Make, server: ServerSpec) -> None:
    async with await sandbox.open(task(server, world={"notes": {"notes": {"a": "1"}}})) as world:
        assert world.init_result == {"notes": {"count": 1}}
        assert "__reserved__init" not in [t.name for t in world.tools]
        (write,) = [t for t in world.tools if t.name == "write"]
        assert write.description == "Write a note."
        assert write.input_schema["properties"]["key"] == {"type": "string", "description": "Name of the note"}
        result = await world.call("write", {"key": "b", "text": "2"}, call_id="1", deadline=20)
        assert (result.text, result.is_error) == ("written", False)
        assert (await world.call("append", {"key": "b", "text": "3"}, call_id="2")).text == "23"
        assert (await world.call("append", {"key": "b", "text": "3"}, call_id="2")).text == "23"
        assert state_diff(world.initial_state, await world.state()) == [["notes.notes.b", None, "23"]]
        failed = await world.call("fail", {}, call_id="3")
        assert failed.is_error
        refused = await world.call("refuse", {}, call_id="protocol")
        assert refused.is_error
        assert "not with these arguments" in refused.text
        wrong = await world.call("write", {"key": 1}, call_id="4")
        assert wrong.is_error
        assert "text" in wrong.text
        # The SDK of the SSE transport, which is deprecated, ends a connection at 1 MB.
        big = await world.call("big", {"size": 200_000 if server.transport == "sse" else 10_000_000}, call_id="5")
        assert big.is_error
        assert "over the limit of 100000" in big.text
        with pytest.raises(SystemFault, match="took longer") as fault:
            await world.call("hang", {"seconds": 3}, call_id="6", deadline=0.3)
        assert fault.value.kind == "tool_timeout"


async def test_a_process_that_crashes_says_why(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    async with await sandbox.open(task(spec(fork=False))) as world:
        with pytest.raises(SystemFault, match="about to crash") as fault:
            await world.call("crash", {}, call_id="1")
        assert fault.value.kind == "sandbox"
        with pytest.raises(SystemFault):
            await world.state()


async def test_a_process_that_prints_to_stdout(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    async with await sandbox.open(task(spec(fork=False))) as world:
        assert (await world.call("shout", {"lines": 3}, call_id="1")).text == "shouted"
        assert (await world.call("write", {"key": "a", "text": "b"}, call_id="2")).text == "written"


async def test_a_process_is_bounded(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    async with await sandbox.open(task(spec(fork=False))) as world:
        assert (await world.call("hungry", {"megabytes": 2000}, call_id="1")).is_error


async def test_a_process_whose_init_fails(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    with pytest.raises(SystemFault) as fault:
        await sandbox.open(task(spec(fork=False), world={"notes": {"refuse": "bad data"}}))
    assert fault.value.kind == "init"


async def test_a_program_that_is_no_mcp_server(task: Make) -> None:
    async with Sandbox(SandboxLimits(open_deadline_seconds=3)) as sandbox:
        for command, cause in [
            (("/no/such/program",), "No such file"),
            (("sh", "-c", "echo oops >&2; exit 3"), "oops"),
        ]:
            with pytest.raises(SystemFault, match=cause) as fault:
                await sandbox.open(task(ServerSpec(name="x", command=command)))
            assert fault.value.kind == "sandbox"
        with pytest.raises(SystemFault, match="took longer"):
            await sandbox.open(task(ServerSpec(name="silent", command=("sleep", "3600"))))


async def test_an_endpoint_that_is_down(sandbox: Sandbox, task: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    down = ServerSpec(name="down", kind="mcp-remote", endpoint=f"http://127.0.0.1:{port}/mcp")
    with pytest.raises(SystemFault) as fault:
        await sandbox.open(task(down))
    assert fault.value.kind == "sandbox"


async def test_a_misspelt_transport(sandbox: Sandbox, task: Make) -> None:
    with pytest.raises(UserError, match="streamable-http, sse"):
        await sandbox.open(task(ServerSpec(name="x", kind="mcp-remote", endpoint="http://x", transport="htpp")))
