"""Whatever a server does, its episode ends within its deadline, with the cause, and the next world is unaffected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from stateward.errors import SystemFault
from stateward.sandbox import Sandbox, SandboxLimits
from stateward.tasks.task import ServerSpec, Task

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
Spec, Make = Callable[..., ServerSpec], Callable[..., Task]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
LIMITS = SandboxLimits(
    tool_deadline_seconds=20,
    open_deadline_seconds=20,
    world_memory_mb=400,
    world_cpu_seconds=2,
    max_output_bytes=100_000,
)


def exists(path: str) -> bool:
    return os.path.exists(path)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(LIMITS) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module")
async def good(sandbox: Sandbox, task: Make) -> AsyncIterator[None]:
    """A world beside the troubled one, and one after it, work as ever."""
    async with await sandbox.open(task()) as beside:
        yield
        assert (await beside.call("write", {"key": "a", "text": "b"}, call_id="1")).text == "written"
    async with await sandbox.open(task()) as after:
        assert await after.state() == {"notes": {"notes": {}}}


@pytest.mark.usefixtures("good")
async def test_a_hung_tool(sandbox: Sandbox, task: Make, alive: Callable[[int], bool]) -> None:
    async with await sandbox.open(task()) as world:
        (pid,) = world.pids
        began = time.monotonic()
        with pytest.raises(SystemFault, match=r"'hang' took longer than 0\.3 s") as fault:
            await world.call("hang", {"seconds": 3600}, call_id="1", deadline=0.3)
        assert fault.value.kind == "tool_timeout"
        assert time.monotonic() - began < 5
        with pytest.raises(SystemFault, match="destroyed because the tool 'hang'") as fault:
            await world.call("write", {"key": "a", "text": "b"}, call_id="2")
        assert fault.value.kind == "sandbox"
        with pytest.raises(SystemFault, match="destroyed because the tool 'hang'"):
            await world.state()
    assert not alive(pid)


@pytest.mark.usefixtures("good")
async def test_a_crashed_server(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        with pytest.raises(SystemFault, match=r"exit status 3; last output: about to crash") as fault:
            await world.call("crash", {}, call_id="1")
        assert fault.value.kind == "sandbox"
        with pytest.raises(SystemFault, match="exit status 3"):
            await world.call("write", {"key": "a", "text": "b"}, call_id="2")


@pytest.mark.usefixtures("good")
async def test_a_tools_exception_is_logged_plainly(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        assert (await world.call("fail", {}, call_id="1")).is_error
        with pytest.raises(SystemFault, match="ValueError: no such note") as fault:
            await world.call("crash", {}, call_id="2")
        assert fault.value.cause.isascii()  # no frame around it, and no source of the SDK's


@pytest.mark.usefixtures("good")
async def test_a_server_that_prints_to_stdout(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        assert (await world.call("shout", {"lines": 2000}, call_id="1")).text == "shouted"
        assert (await world.call("write", {"key": "a", "text": "b"}, call_id="2")).text == "written"


@pytest.mark.usefixtures("good")
async def test_10_mb_of_output(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        result = await world.call("big", {"size": 10_000_000}, call_id="1")
        assert result.is_error
        assert result.text == "The tool's output of 10000000 bytes is over the limit of 100000. Ask for less."
        assert (await world.call("big", {"size": 100_000}, call_id="2")).text == "x" * 100_000


@pytest.mark.usefixtures("good")
async def test_a_fork_bomb(sandbox: Sandbox, task: Make, descendants: Callable[[int], set[int]]) -> None:
    async with await sandbox.open(task()) as world:
        result = await world.call("bomb", {}, call_id="1")
        assert result.is_error
        assert not descendants(world.pids[0])
        assert (await world.call("write", {"key": "a", "text": "b"}, call_id="2")).text == "written"


@pytest.mark.usefixtures("good")
async def test_a_fork_bomb_of_a_server_that_may_have_processes(
    sandbox: Sandbox, task: Make, spec: Spec, descendants: Callable[[int], set[int]], until: Until
) -> None:
    async with await sandbox.open(task(spec("processes"))) as world:
        parent = sandbox.pids[-1]
        before = descendants(parent)
        assert (await world.call("run", {"command": "echo from a shell"}, call_id="1")).text == "from a shell"
        # A daemon in a session of its own, which a signal to the world's group would miss.
        assert (await world.call("daemon", {}, call_id="2")).text == "started"
        await until(lambda: len(descendants(parent) - before) == 1)
        with pytest.raises(SystemFault, match="took longer") as fault:
            await world.call("bomb", {"most": 40}, call_id="3", deadline=0.5)
        assert fault.value.kind == "tool_timeout"
    await until(lambda: descendants(parent) == before - set(world.pids))


@pytest.mark.usefixtures("good")
async def test_memory_is_bounded(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        result = await world.call("hungry", {"megabytes": 1000}, call_id="1")
        assert result.is_error
        assert (await world.call("hungry", {"megabytes": 50}, call_id="2")).text == str(50 << 20)


@pytest.mark.usefixtures("good")
async def test_cpu_is_bounded(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        with pytest.raises(SystemFault, match=r"SIGXCPU|SIGKILL") as fault:
            await world.call("spin", {}, call_id="1")
        assert fault.value.kind == "sandbox"


@pytest.mark.usefixtures("good")
async def test_files_go_with_the_world(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        left = (await world.call("scratch", {"name": "mine"}, call_id="1")).text
        assert exists(left)
    assert not exists(left)
    assert not exists(os.path.dirname(left))


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({"refuse": "the data is bad"}, "__reserved__init"),
        ({"status": "error"}, "instead of status ok"),
    ],
)
async def test_an_init_that_fails(sandbox: Sandbox, task: Make, config: dict[str, str], cause: str) -> None:
    for _ in range(2):
        with pytest.raises(SystemFault, match=cause) as fault:
            await sandbox.open(task(world={"notes": config}))
        assert fault.value.kind == "init"


async def test_an_init_that_hangs(task: Make, descendants: Callable[[int], set[int]], until: Until) -> None:
    limits = SandboxLimits()
    async with Sandbox(limits) as sandbox:
        async with await sandbox.open(task()):
            # The import, which takes long on a crowded machine, is behind us; only what hangs is waited for.
            object.__setattr__(limits, "open_deadline_seconds", 3.0)
            began = time.monotonic()
            with pytest.raises(SystemFault, match="init took longer") as fault:
                await sandbox.open(task(world={"notes": {"hang": True}}))
            assert fault.value.kind == "init"
            assert time.monotonic() - began < 60
        await until(lambda: len(descendants(sandbox.pids[0])) == 1)


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
        ("print('my last words'); raise SystemExit(9)", "my last words"),
        ("import os; os.write(2, b'gone'); os._exit(7)", "gone"),
        ("import time; time.sleep(3600)", "longer than"),
    ],
)
async def test_an_import_that_fails(task: Make, spec: Spec, tmp_path: Path, source: str, cause: str) -> None:
    (tmp_path / "bad.py").write_text(source + "\n")
    async with Sandbox(SandboxLimits(open_deadline_seconds=3)) as sandbox:
        with pytest.raises(SystemFault, match=cause) as fault:
            await sandbox.open(task(spec("bad", file=str(tmp_path / "bad.py"))))
        assert fault.value.kind == "sandbox"


async def test_an_interpreter_that_is_not_there(sandbox: Sandbox, task: Make) -> None:
    missing = ServerSpec(name="x", command=("/no/such/python3", "-m", "x"))
    with pytest.raises(SystemFault, match="cannot start /no/such/python3"):
        await sandbox.open(task(missing))


@pytest.mark.usefixtures("good")
async def test_a_server_killed_from_outside(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        os.kill(world.pids[0], signal.SIGKILL)
        with pytest.raises(SystemFault, match="SIGKILL") as fault:
            await world.call("write", {"key": "a", "text": "b"}, call_id="1")
        assert fault.value.kind == "sandbox"


async def test_a_dead_warm_parent_is_replaced(task: Make, alive: Callable[[int], bool], until: Until) -> None:
    async with Sandbox() as sandbox, await sandbox.open(task()) as world:
        (parent,) = sandbox.pids
        os.kill(parent, signal.SIGKILL)
        await until(lambda: not alive(world.pids[0]))
        with pytest.raises(SystemFault):
            await world.call("write", {"key": "a", "text": "b"}, call_id="1")
        async with await sandbox.open(task()) as again:
            assert (await again.call("write", {"key": "a", "text": "b"}, call_id="1")).text == "written"
        assert sandbox.pids != [parent]
