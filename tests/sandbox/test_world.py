from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from stateward.errors import SystemFault, UserError
from stateward.sandbox import Sandbox, SandboxLimits, World, state_diff, state_hash
from stateward.tasks.task import ServerSpec, Task, ToolPolicy

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
Spec, Make = Callable[..., ServerSpec], Callable[..., Task]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(SandboxLimits(tool_deadline_seconds=20)) as sandbox:
        yield sandbox


async def text(world: World, name: str, call_id: str = "", **arguments: object) -> str:
    result = await world.call(name, arguments, call_id=call_id or f"{name}{arguments}")
    assert not result.is_error, result.text
    return result.text


async def test_a_call_changes_the_state_and_the_diff_says_how(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task(world={"notes": {"notes": {"a": "1"}}})) as world:
        assert world.init_result == {"notes": {"count": 1}}
        assert world.initial_state == {"notes": {"notes": {"a": "1"}}}
        assert world.initial_state_hash == state_hash(world.initial_state)
        result = await world.call("write", {"key": "b", "text": "2"}, call_id="1", deadline=10)
        assert (result.text, result.is_error) == ("written", False)
        assert 0 < result.seconds < 10
        after = await world.state()
        assert state_diff(world.initial_state, after) == [["notes.notes.b", None, "2"]]
    assert sandbox.explain() == {"notes": "forked"}


async def test_the_model_sees_the_servers_own_schema(sandbox: Sandbox, task: Make) -> None:
    policies = (ToolPolicy(name="write", override_description="Put down."), ToolPolicy(name="fail"))
    async with await sandbox.open(task(tools=policies)) as world:
        assert [t.name for t in world.tools] == ["write", "fail"]
        assert world.tools[0].description == "Put down."
        properties = world.tools[0].input_schema["properties"]
        assert properties["key"] == {"type": "string", "description": "Name of the note"}
        assert world.tools[0].input_schema["required"] == ["key", "text"]
        hidden = await world.call("append", {"key": "a", "text": "b"}, call_id="1")
        assert hidden.is_error
        assert "append" in hidden.text
        reserved = await world.call("__reserved__init", {"config": {}}, call_id="2")
        assert reserved.is_error
    with pytest.raises(UserError, match="did you mean 'write'"):
        await sandbox.open(task(tools=(ToolPolicy(name="wrote"),)))


async def test_state_never_leaks_between_episodes_of_a_task(sandbox: Sandbox, task: Make) -> None:
    one = task(world={"notes": {"notes": {"a": ""}}})
    worlds = [await sandbox.open(one) for _ in range(4)]
    for i, world in enumerate(worlds):
        for k in range(3):
            await text(world, "append", f"{k}", key="a", text=f"{i}")
    assert [(await w.state())["notes"]["notes"]["a"] for w in worlds] == ["000", "111", "222", "333"]
    for world in worlds:
        await world.aclose()
    async with await sandbox.open(one) as world:
        assert await world.state() == world.initial_state == {"notes": {"notes": {"a": ""}}}


async def test_random_generators_differ_between_worlds(sandbox: Sandbox, task: Make) -> None:
    drawn = []
    for _ in range(3):
        async with await sandbox.open(task()) as world:
            drawn += (await text(world, "draw")).split()
    assert len(set(drawn)) == 6


async def test_a_repeated_call_id_is_not_applied_again(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        calls = [world.call("append", {"key": "a", "text": "x"}, call_id="same") for _ in range(3)]
        first, *rest = await asyncio.gather(*calls)
        assert [r.text for r in rest] == ["x", "x"]
        assert await world.call("append", {"key": "a", "text": "x"}, call_id="same") == first
        assert (await world.state())["notes"]["notes"] == {"a": "x"}
        with pytest.raises(ValueError, match="same"):
            await world.call("append", {"key": "a", "text": "y"}, call_id="same")


async def test_a_cancelled_callers_result_is_kept(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        caller = asyncio.create_task(world.call("hang", {"seconds": 0.3}, call_id="1"))
        await asyncio.sleep(0.05)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (await world.call("hang", {"seconds": 0.3}, call_id="1")).text == "slept"
        assert (await world.state())["notes"]["notes"] == {"hang": "done"}


async def test_calls_to_one_world_are_applied_in_order(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        calls = [world.call("append", {"key": "a", "text": f"{i}"}, call_id=f"{i}") for i in range(10)]
        results = await asyncio.gather(*calls)
        assert results[-1].text == "0123456789"


async def test_a_tools_own_error_is_a_result_and_the_world_goes_on(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        for call_id, name, arguments in [("1", "fail", {}), ("2", "write", {"key": "a"}), ("3", "nothing", {})]:
            result = await world.call(name, arguments, call_id=call_id)
            assert result.is_error
            assert name in result.text
        assert await text(world, "write", key="a", text="b") == "written"


async def test_a_deadline_that_passes_in_the_queue_leaves_the_world_alive(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        slow = asyncio.create_task(world.call("hang", {"seconds": 0.6}, call_id="slow"))
        await asyncio.sleep(0.05)
        with pytest.raises(SystemFault, match="was not begun within") as fault:
            await world.call("write", {"key": "late", "text": ""}, call_id="late", deadline=0.1)
        assert fault.value.kind == "tool_timeout"
        assert (await slow).text == "slept"
        assert (await world.state())["notes"]["notes"] == {"hang": "done"}


async def test_two_servers_in_one_world(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    both = task(
        spec(), spec("counter", file="counter.py"), world={"notes": {"notes": {"k": "v"}}, "counter": {"start": 5}}
    )
    async with await sandbox.open(both) as world, await sandbox.open(both) as other:
        assert json.loads(await text(world, "add", amount=2)) == {"value": 7}
        await text(world, "write", key="k", text="w")
        # Both servers have a tool `pid`; the later one has it.
        assert int(await text(world, "pid")) == world.pids[1]
        assert await world.state() == {"notes": {"notes": {"k": "w"}}, "counter": {"value": 7}}
        assert await other.state() == {"notes": {"notes": {"k": "v"}}, "counter": {"value": 5}}
        assert world.init_result == {"notes": {"count": 1}, "counter": {}}


async def test_closing_twice_and_calling_afterwards(sandbox: Sandbox, task: Make) -> None:
    world = await sandbox.open(task())
    await asyncio.gather(world.aclose(), world.aclose())
    with pytest.raises(SystemFault, match="closed") as fault:
        await world.call("write", {"key": "a", "text": "b"}, call_id="1")
    assert fault.value.kind == "sandbox"
    with pytest.raises(SystemFault, match="closed"):
        await world.state()


async def test_many_worlds_at_once(sandbox: Sandbox, task: Make) -> None:
    async def episode(i: int) -> None:
        async with await sandbox.open(task()) as world:
            await text(world, "write", key="who", text=f"{i}")
            assert await world.state() == {"notes": {"notes": {"who": f"{i}"}}}

    await asyncio.gather(*(episode(i) for i in range(40)))


async def test_tools_can_use_threads(sandbox: Sandbox, task: Make) -> None:
    async with await sandbox.open(task()) as world:
        assert await text(world, "threaded") == "from a thread"


async def test_no_secret_of_ours_reaches_a_server(
    sandbox: Sandbox, task: Make, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    monkeypatch.setenv("TYPESENSE_API_KEY", "not ours to hide")
    monkeypatch.setenv("PLAIN", "seen")
    async with await sandbox.open(task(spec("env", file="notes.py", env={"OWN_KEY": "given"}))) as world:
        names = ("JUDGE_API_KEY", "TYPESENSE_API_KEY", "PLAIN", "OWN_KEY")
        assert [await text(world, "environment", variable=n) for n in names] == [
            "",
            "not ours to hide",
            "seen",
            "given",
        ]


async def test_the_number_of_worlds_is_bounded(task: Make) -> None:
    limits = SandboxLimits(max_worlds=2)
    async with Sandbox(limits) as sandbox:
        first, _second = [await sandbox.open(task()) for _ in range(2)]
        third = asyncio.create_task(sandbox.open(task()))
        await asyncio.sleep(0.2)
        assert not third.done()
        await first.aclose()
        await third
        object.__setattr__(limits, "open_deadline_seconds", 0.5)  # frozen for users; what was opened took longer
        with pytest.raises(SystemFault, match="one of 2 places"):
            await sandbox.open(task())


async def test_idle_worlds_and_snapshots_go(task: Make, alive: Callable[[int], bool], until: Until) -> None:
    async with Sandbox(SandboxLimits(idle_seconds=0.4)) as sandbox:
        world = await sandbox.open(task())
        (pid,) = world.pids
        await until(lambda: not alive(pid))
        with pytest.raises(SystemFault, match=r"not used for 0\.4 s"):
            await world.call("write", {"key": "a", "text": "b"}, call_id="1")
        async with await sandbox.open(task()) as again:
            assert await text(again, "write", key="a", text="b") == "written"


async def test_more_states_at_once_than_snapshots(task: Make) -> None:
    async with Sandbox(SandboxLimits(max_snapshots=1)) as sandbox:

        async def episode(i: int) -> None:
            state = {"notes": {"i": f"{i % 3}"}}
            async with await sandbox.open(task(world={"notes": state})) as world:
                assert world.initial_state == {"notes": state}

        for _ in range(3):
            await asyncio.gather(*(episode(i) for i in range(9)))


async def test_snapshots_are_bounded_and_come_back(
    task: Make, descendants: Callable[[int], set[int]], until: Until
) -> None:
    async with Sandbox(SandboxLimits(max_snapshots=2)) as sandbox:
        for i in [0, 1, 2, 3, 0]:
            async with await sandbox.open(task(world={"notes": {"notes": {"i": f"{i}"}}})) as world:
                assert world.initial_state == {"notes": {"notes": {"i": f"{i}"}}}
        (parent,) = sandbox.pids
        await until(lambda: len(descendants(parent)) == 2)
