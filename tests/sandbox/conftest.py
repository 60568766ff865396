from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateward.tasks.task import Check, ServerSpec, Task, ToolPolicy

SERVERS = Path(__file__).parent / "servers"


def _spec(name: str = "notes", *, file: str = "", **changes: Any) -> ServerSpec:
    command = (sys.executable, str(SERVERS / (file or f"{name}.py")))
    return ServerSpec(**{"name": name, "command": command, **changes})


def _task(*specs: ServerSpec, world: dict[str, Any] | None = None, tools: tuple[ToolPolicy, ...] = ()) -> Task:
    specs = specs or (_spec(),)
    return Task(
        uid="file.py:test_name",
        domain="file",
        system="",
        query="",
        check=Check(file="file.py", function="test_name", source=""),
        world=world if world is not None else {spec.name: {} for spec in specs},
        servers=specs,
        tools=tools,
    )


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    open_ = [pid]
    while open_:
        parent = open_.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            texts = [Path(f"/proc/{parent}/task/{task}/children").read_text() for task in tasks]
        except FileNotFoundError:
            continue
        children = [int(child) for text in texts for child in text.split()]
        found.update(children)
        open_ += children
    return found


@pytest.fixture
def spec() -> Callable[..., ServerSpec]:
    """A server of tests/sandbox/servers."""
    return _spec


@pytest.fixture
def task() -> Callable[..., Task]:
    """A task with these servers (default: notes) and this world state."""
    return _task


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs (a zombie does not)."""
    return _alive


@pytest.fixture
def descendants() -> Callable[[int], set[int]]:
    """Process ids of everything under a process."""
    return _descendants


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for a condition that another process brings about; the test's own time limit bounds it."""

    async def wait(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the other process has no event to wait for
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture(autouse=True, scope="module")
def no_leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test file of this area may leave a process, a file or a descriptor behind."""
    folder = tmp_path_factory.mktemp("sandboxes")
    old, tempfile.tempdir = tempfile.tempdir, str(folder)
    before, fds = _descendants(os.getpid()), len(os.listdir("/proc/self/fd"))
    yield
    tempfile.tempdir = old
    left = {pid for pid in _descendants(os.getpid()) - before if _alive(pid)}
    assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
    assert not list(folder.iterdir())
    assert len(os.listdir("/proc/self/fd")) <= fds + 8, (
        "descriptors leak"
    )  # an event loop of the test run may have come
