from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stateward.sandbox import Sandbox, spares
from stateward.tasks.task import Task

pytestmark = pytest.mark.slow
Make = Callable[..., Task]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine two openings may lie further apart than what counts as steady."""
    monkeypatch.setattr(spares, "_WINDOW_SECONDS", 60.0)


async def test_steady_asking_makes_spares_and_a_burst_does_not(
    task: Make,
    descendants: Callable[[int], set[int]],
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    async with Sandbox() as sandbox:
        worlds = await asyncio.gather(*(sandbox.open(task()) for _ in range(6)))
        (parent,) = sandbox.pids
        assert len(descendants(parent)) == 1 + 6  # the snapshot and its worlds
        for world in worlds:
            await world.call("write", {"key": "k", "text": "burst"}, call_id="1")
            await world.aclose()
        await asyncio.sleep(1.2)  # what is being tested is the passing of time
        async with await sandbox.open(task()):
            await until(lambda: len(descendants(parent)) == 3)  # the snapshot, the world, a spare
            before = descendants(parent)
            async with await sandbox.open(task()) as quick:
                assert quick.pids[0] in before
                assert await quick.state() == quick.initial_state == {"notes": {"notes": {}}}
                drawn = await quick.call("draw", {}, call_id="1")
                async with await sandbox.open(task()) as other:
                    assert (await other.call("draw", {}, call_id="1")).text != drawn.text


async def test_a_spare_that_died_is_not_handed_out(
    task: Make,
    descendants: Callable[[int], set[int]],
    until: Callable[[Callable[[], bool]], Awaitable[None]],
    alive: Callable[[int], bool],
) -> None:
    import os
    import signal

    async with Sandbox() as sandbox:
        for _ in range(2):
            async with await sandbox.open(task()):
                pass
        (parent,) = sandbox.pids
        await asyncio.sleep(1.2)
        async with await sandbox.open(task()) as world:
            await until(lambda: len(descendants(parent)) == 3)
            snapshot = {pid for pid in descendants(parent) if descendants(pid)}
            (spare,) = descendants(parent) - snapshot - set(world.pids)
            os.kill(spare, signal.SIGKILL)
            await until(lambda: not alive(spare))
            for _ in range(3):  # rounds of the event loop, which then has seen the end of its socket
                await asyncio.sleep(0)
            async with await sandbox.open(task()) as other:
                assert other.pids != [spare]
                assert (await other.call("write", {"key": "a", "text": "b"}, call_id="1")).text == "written"
