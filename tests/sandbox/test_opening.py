"""A world that opens in the background: what is known of it before, and that nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stateward.errors import SystemFault, UserError
from stateward.sandbox import Sandbox, SandboxLimits, World
from stateward.sandbox.forked import ForkedServer
from stateward.tasks.task import ServerSpec, Task, ToolPolicy

pytestmark = pytest.mark.slow

Spec, Make = Callable[..., ServerSpec], Callable[..., Task]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
STATE = {"notes": {"notes": {"a": "1"}}}


async def test_the_scene_is_that_of_the_world_and_does_not_wait_for_it(task: Make) -> None:
    one = task(world=STATE)
    async with Sandbox(SandboxLimits(max_worlds=1, open_deadline_seconds=30)) as sandbox:
        first = await sandbox.open(one)
        async with sandbox.opening(one) as opening:
            scene = await opening.scene()  # the only place is taken
            assert scene.initial_state == STATE
            assert scene == first.scene
            coming = asyncio.create_task(opening.world())
            await asyncio.sleep(0)
            assert not coming.done()
            await first.aclose()
            world = await coming
            assert world.scene == scene
            assert not (await world.call("write", {"key": "b", "text": "2"}, call_id="1")).is_error


async def test_after_the_block_the_place_is_free_and_no_process_is_left(
    task: Make, alive: Callable[[int], bool], until: Until
) -> None:
    async with Sandbox(SandboxLimits(max_worlds=1)) as sandbox:
        async with sandbox.opening(task()) as opening:
            (pid,) = (await opening.world()).pids
        async with await sandbox.open(task()):  # waits for the place
            await until(lambda: not alive(pid))
        async with sandbox.opening(task()):
            pass  # left before it was open
        async with await sandbox.open(task()):
            pass
        async with sandbox.opening(task()) as opening:
            (pid,) = (await opening.world()).pids
    assert not alive(pid)


async def test_the_scene_of_a_server_that_is_not_forked_comes_with_the_world(task: Make, spec: Spec) -> None:
    one = task(spec(fork=False), world=STATE)
    async with Sandbox() as sandbox:
        assert await sandbox.scene(one) is None
        async with sandbox.opening(one) as opening:
            scene = await opening.scene()
            assert scene is (await opening.world()).scene
            assert scene.initial_state == STATE


async def test_what_goes_wrong_in_opening_is_told_as_open_tells_it(task: Make, spec: Spec) -> None:
    async with Sandbox() as sandbox:
        async with sandbox.opening(task(spec("missing", file="no_such_file.py"))) as opening:
            for ask in (opening.scene, opening.world):
                with pytest.raises(SystemFault, match="cannot be imported"):
                    await ask()
        async with sandbox.opening(task(tools=(ToolPolicy(name="no_such_tool"),))) as opening:
            for ask in (opening.scene, opening.world):
                with pytest.raises(UserError, match="no_such_tool"):
                    await ask()


async def test_a_world_that_must_be_prepared_is_not_known_before(task: Make, alive: Callable[[int], bool]) -> None:
    seen: list[int] = []

    async def refuse(world: World) -> None:
        seen.extend(world.pids)
        raise SystemFault("init", "not like this")

    async with Sandbox() as sandbox, sandbox.opening(task(), refuse) as opening:
        with pytest.raises(SystemFault, match="not like this"):
            await opening.scene()
    assert len(seen) == 1
    assert not alive(seen[0])


async def test_who_is_cancelled_while_leaving_leaves_no_world(task: Make) -> None:
    opened = asyncio.Event()

    async def episode(sandbox: Sandbox) -> None:
        async with sandbox.opening(task()) as opening:
            await opening.world()
            opened.set()

    async with Sandbox(SandboxLimits(max_worlds=1, open_deadline_seconds=30)) as sandbox:
        running = asyncio.create_task(episode(sandbox))
        await opened.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await sandbox.settled()
        async with await sandbox.open(task()):  # the only place
            pass


async def test_an_opening_that_failed_gives_its_place_back_when_it_is_left_at_its_end(
    task: Make, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, go_on = asyncio.Event(), asyncio.Event()
    close = ForkedServer.close

    async def slowly(self: ForkedServer) -> None:
        closing.set()
        await go_on.wait()
        await close(self)

    async with Sandbox(SandboxLimits(max_worlds=1, open_deadline_seconds=30)) as sandbox:
        async with await sandbox.open(task()):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(ForkedServer, "close", slowly)
            async with sandbox.opening(task(spec(), spec("missing", file="no_such_file.py"))):
                await closing.wait()  # the first server's end, since the second does not start
            go_on.set()
        await sandbox.settled()
        async with await sandbox.open(task()):
            pass
