"""The sandbox: opens worlds, keeps their warm parents and snapshots ready, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from stateward.errors import SystemFault
from stateward.outcome import fingerprint
from stateward.sandbox import toolset
from stateward.sandbox.forked import ForkedServer
from stateward.sandbox.inside.locate import NotForkable, Target, parse_command
from stateward.sandbox.limits import SandboxLimits
from stateward.sandbox.opening import Opening
from stateward.sandbox.plain import PlainServer
from stateward.sandbox.server import ServerSession
from stateward.sandbox.snapshot import Snapshot
from stateward.sandbox.warm import WarmParent
from stateward.sandbox.world import Scene, World
from stateward.tasks.task import ServerSpec, Task

T = TypeVar("T")


class Sandbox:
    """An async context manager; one per event loop.

    async with Sandbox() as sandbox, await sandbox.open(task) as world:
        result = await world.call("find_order", {"id": 7}, call_id="1", deadline=30.0)
        state = await world.state()
    """

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self._limits = limits = limits or SandboxLimits()
        self._places = asyncio.Semaphore(limits.max_worlds)
        self._warm: dict[str, asyncio.Task[WarmParent]] = {}
        self._plain: dict[str, str] = {}  # server's key → why it is not forked
        self._snapshots: dict[str, asyncio.Task[Snapshot]] = {}
        self._snapshot_used: dict[str, float] = {}
        self._opening: Counter[str] = Counter()  # worlds on their way, by snapshot: it may not be closed under them
        self._worlds: set[World] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._scratch: Path | None = None
        self._reaper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sandbox:
        self._scratch = Path(tempfile.mkdtemp(prefix="stateward-"))
        self._reaper = asyncio.create_task(self._reap_idle())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Destroy every world, snapshot and warm parent; returns when their processes and files are gone."""
        if self._reaper is not None:
            self._reaper.cancel()
        await asyncio.gather(*(world.aclose() for world in list(self._worlds)))
        for tasks in (self._snapshots, self._warm):
            kept = list(tasks.values())
            tasks.clear()
            await asyncio.gather(*(_close_made(task) for task in kept))
        await self.settled()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    async def open(self, task: Task) -> World:
        """A fresh world in the task's initial state.

        Raises:
            SystemFault: "sandbox" or "init", with the cause.
            UserError: the scenario names a tool or an argument that no server has, or gives a state that none takes.
        """
        if self._scratch is None:
            raise RuntimeError("this sandbox is not open; use `async with Sandbox() as sandbox`")
        seconds = self._limits.open_deadline_seconds
        doing, placed = f"the wait for one of {self._limits.max_worlds} places", False
        servers: list[ServerSession] = []
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
                placed = True
                session_id = str(uuid.uuid4())
                for spec in task.servers:
                    doing = f"opening server {spec.name!r}"
                    servers.append(await self._open_server(spec, _config(task, spec), session_id))
            specs, owner = toolset.of_task(task, [(s.name, s.tools) for s in servers])
        except BaseException as error:
            for server in servers:
                server.kill()
            # In the background: who waits here may be cancelled, and the place must come back all the same.
            await asyncio.shield(self._later(self._give_up(servers, placed)))
            if isinstance(error, TimeoutError):
                raise SystemFault("sandbox", f"{doing} took longer than {seconds:g} s") from None
            raise
        world = World(servers, specs, owner, self._limits, lambda: self._on_closed(world))
        self._worlds.add(world)
        return world

    def opening(self, task: Task, prepare: Callable[[World], Awaitable[None]] | None = None) -> Opening:
        """`open` in the background, for who can begin with what is known of the world: see `Opening`."""
        return Opening(self, task, prepare)

    async def scene(self, task: Task) -> Scene | None:
        """How a world of `task` begins, if that is known before it is open: of forked servers with one state for all.

        Raises:
            SystemFault, UserError: as `open` does.
        """
        snapshots: list[Snapshot] = []
        for spec in task.servers:
            key, target = self._target(spec)
            try:
                if (
                    target is None
                    or (snapshot := await self._snapshot(key, spec, target, _config(task, spec))).in_child
                ):
                    return None
            except NotForkable:
                return None
            snapshots.append(snapshot)
        tools, _ = toolset.of_task(task, [(s.name, s.warm.tools) for s in snapshots])
        return Scene.of(tools, snapshots)

    def close_later(self, world: World) -> None:
        """Close `world` without waiting for the end of its processes; `aclose` does."""
        self._later(world.aclose())

    def abandon(self, opening: asyncio.Task[World]) -> None:
        """Stop a world's opening, or close the world that it made, without waiting; `aclose` waits."""
        opening.cancel()
        self._later(_close_opened(opening))

    async def settled(self) -> None:
        """Wait until nothing is being closed in the background."""
        while self._closing:
            await asyncio.wait(self._closing)

    def explain(self) -> dict[str, str]:
        """How each server opened so far runs: ``forked``, ``forked; init in every world: why`` or ``process: why``."""
        found = {}
        for task in self._warm.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                warm = task.result()
                found[warm.spec.name] = f"forked; init in every world: {warm.in_child}" if warm.in_child else "forked"
        for key, why in self._plain.items():
            found[key.partition("#")[0]] = f"process: {why}"
        return found

    @property
    def folder(self) -> Path:
        """The sandbox's temporary folder, removed with it."""
        assert self._scratch is not None
        return self._scratch

    @property
    def pids(self) -> list[int]:
        """The warm parents' process ids; every other process of this sandbox descends from one of them."""
        return [task.result().pid for task in self._warm.values() if task.done() and task.exception() is None]

    def _on_closed(self, world: World) -> None:
        self._worlds.discard(world)
        self._places.release()

    async def _give_up(self, servers: Sequence[ServerSession], placed: bool) -> None:
        """End the servers of a world that did not come to be."""
        try:
            await asyncio.gather(*(server.close() for server in servers))
        finally:
            if placed:
                self._places.release()

    async def _open_server(self, spec: ServerSpec, config: dict[str, Any], session_id: str) -> ServerSession:
        key, target = self._target(spec)
        if target is not None:
            try:
                return await self._fork(key, spec, target, config, session_id)
            except NotForkable as reason:
                self._plain[key] = str(reason)
        return await PlainServer.start(spec, config, self._limits, session_id, self.folder)

    def _target(self, spec: ServerSpec) -> tuple[str, Target | None]:
        """The server's key, and what to import for it; None if it cannot be forked, for a reason in `_plain`."""
        key = f"{spec.name}#{fingerprint([list(spec.command), spec.env, spec.cwd, spec.kind])}"
        if key in self._plain:
            return key, None
        target = parse_command(spec.command) if spec.kind == "mcp-process" else None
        if target is None or not spec.fork:
            self._plain[key] = (
                "servers.yaml says fork: false"
                if not spec.fork
                else "it is remote"
                if spec.kind == "mcp-remote"
                else "its command is not a Python module or file"
            )
            return key, None
        return key, target

    async def _fork(
        self, key: str, spec: ServerSpec, target: Target, config: dict[str, Any], session_id: str
    ) -> ForkedServer:
        state_key = f"{key}/{fingerprint(config)}"
        self._opening[state_key] += 1
        try:
            snapshot = await self._snapshot(key, spec, target, config)
            try:
                return await snapshot.world(session_id)
            except SystemFault:
                if snapshot.alive:
                    raise
            # The snapshot had died unnoticed; nothing of this world has happened yet.
            return await (await self._snapshot(key, spec, target, config)).world(session_id)
        finally:
            self._opening[state_key] -= 1
            if not self._opening[state_key]:
                del self._opening[state_key]
            self._make_room()

    async def _snapshot(self, key: str, spec: ServerSpec, target: Target, config: dict[str, Any]) -> Snapshot:
        scratch = self._scratch
        assert scratch is not None
        state_key = f"{key}/{fingerprint(config)}"

        async def make() -> Snapshot:
            warm = await self._shared(
                self._warm, key, lambda: WarmParent.start(spec, target, self._limits, scratch), lambda w: w.alive
            )
            return await Snapshot.start(warm, config)

        self._snapshot_used[state_key] = time.monotonic()
        return await self._shared(self._snapshots, state_key, make, lambda s: s.alive)

    async def _shared(
        self,
        tasks: dict[str, asyncio.Task[T]],
        key: str,
        make: Callable[[], Awaitable[T]],
        is_alive: Callable[[T], bool],
    ) -> T:
        """The value that all openers share; made once, made again if the last making failed or its process is gone."""
        task = tasks.get(key)
        if task is not None and task.done():
            if task.cancelled() or task.exception() is not None:
                task = None
            elif not is_alive(task.result()):
                self._later(_close_made(task))
                task = None
        if task is None:
            tasks[key] = task = asyncio.ensure_future(make())
            task.add_done_callback(lambda t: None if t.cancelled() else t.exception())
        return await asyncio.shield(task)

    def _make_room(self) -> None:
        """Close the snapshots that are over the bound, the least recently used first; those in use stay."""
        excess = len(self._snapshots) - self._limits.max_snapshots
        for key in sorted(self._snapshots, key=lambda k: self._snapshot_used.get(k, 0.0)):
            if excess <= 0:
                return
            if self._close_if_unused(key):
                excess -= 1

    def _close_if_unused(self, key: str) -> bool:
        task = self._snapshots[key]
        if (
            self._opening[key]
            or not task.done()
            or (not task.cancelled() and task.exception() is None and task.result().worlds)
        ):
            return False
        del self._snapshots[key]
        self._snapshot_used.pop(key, None)
        self._later(_close_made(task))
        return True

    async def _reap_idle(self) -> None:
        idle = self._limits.idle_seconds
        while True:
            await asyncio.sleep(min(30.0, idle / 4))
            limit = time.monotonic() - idle
            for world in list(self._worlds):
                if world.last_used < limit and not world.busy:
                    world.destroy(f"the world was destroyed because it was not used for {idle:g} s")
                    self._later(world.aclose())
            for key, used in list(self._snapshot_used.items()):
                if used < limit and key in self._snapshots:
                    self._close_if_unused(key)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


def _config(task: Task, spec: ServerSpec) -> dict[str, Any]:
    """What a server of `task` is initialised with."""
    return task.world.get(spec.name) or {}


async def _close_made(task: asyncio.Task[Any]) -> None:
    """Close what a task made, or stop its making."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close()


async def _close_opened(opening: asyncio.Task[World]) -> None:
    """Close the world of an opening that was told to stop, if it was too late for that."""
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()
