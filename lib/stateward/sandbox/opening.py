"""A world on its way. What the model sees of it is known from its snapshots, so sampling need not wait for forks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from stateward.sandbox.world import Scene, World
from stateward.tasks.task import Task


class Opener(Protocol):
    """The part of `Sandbox` that an opening uses."""

    async def open(self, task: Task) -> World: ...

    async def scene(self, task: Task) -> Scene | None: ...

    def abandon(self, opening: asyncio.Task[World]) -> None: ...

    def close_later(self, world: World) -> None: ...


class Opening:
    """Made by `Sandbox.opening`; an async context manager. The world is opened at once, in the background.

    On leaving the block the world is closed in the background too: the sandbox counts it as open until its processes
    are gone, and `Sandbox.aclose` waits for them.

    Args:
        prepare: run on the world before anybody gets it. A world that has to be prepared is not known before it is.
    """

    def __init__(self, sandbox: Opener, task: Task, prepare: Callable[[World], Awaitable[None]] | None) -> None:
        self._sandbox, self._task, self._prepare = sandbox, task, prepare

    async def __aenter__(self) -> Opening:
        self._world = asyncio.create_task(self._open())
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Nothing is waited for: whoever leaves may be cancelled just now, and the world would be nobody's.
        self._sandbox.abandon(self._world)

    async def scene(self) -> Scene:
        """How the world begins: at once where its servers' snapshots are there, else with the world.

        Raises:
            SystemFault, UserError: as `Sandbox.open` does.
        """
        if self._prepare is not None:
            return (await self.world()).scene
        known = asyncio.create_task(self._sandbox.scene(self._task))
        try:
            # Opening has the deadline, and of what goes wrong for both it tells more.
            await asyncio.wait([known, self._world], return_when=asyncio.FIRST_COMPLETED)
            if not self._world.done() and known.exception() is None and (scene := known.result()) is not None:
                return scene
        finally:
            known.cancel()
            await asyncio.gather(known, return_exceptions=True)
        return (await self.world()).scene

    async def world(self) -> World:
        """The open and prepared world. Raises as `Sandbox.open` and `prepare` do."""
        return await asyncio.shield(self._world)

    async def _open(self) -> World:
        world = await self._sandbox.open(self._task)
        if self._prepare is not None:
            try:
                await self._prepare(world)
            except BaseException:
                self._sandbox.close_later(world)
                raise
        return world
