"""What must not cross a fork does not, and a server can say how it is re-made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from stateward.errors import SystemFault
from stateward.sandbox import Sandbox, World
from stateward.tasks.task import ServerSpec, Task

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]
Spec, Make = Callable[..., ServerSpec], Callable[..., Task]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def careless(spec: Spec, tmp_path: Path) -> Callable[[str, str], ServerSpec]:
    def make(when: str, what: str) -> ServerSpec:
        plain = spec("careless")
        env = {"TRACE": str(tmp_path / "trace"), "DATABASE": str(tmp_path / "db")}
        return spec(f"{when}-{what}", command=(*plain.command, when, what), env=env)

    return make


async def value(world: World, name: str, **arguments: object) -> str:
    result = await world.call(name, arguments, call_id=f"{name}{arguments}")
    assert not result.is_error, result.text
    return result.text


async def test_sqlite_with_the_hook_is_forked_after_init(sandbox: Sandbox, task: Make, spec: Spec) -> None:
    one = task(spec("ledger"), world={"ledger": {"amounts": [1, 2]}})
    async with await sandbox.open(one) as a, await sandbox.open(one) as b:
        await value(a, "book", amount=3)
        await value(b, "book", amount=4)
        assert await a.state() == {"ledger": {"amounts": [1, 2, 3]}}
        assert await b.state() == {"ledger": {"amounts": [1, 2, 4]}}
    assert sandbox.explain()["ledger"] == "forked"


@pytest.mark.parametrize("what", ["thread", "socket", "sqlite"])
async def test_opened_by_init_means_init_in_every_world(
    sandbox: Sandbox, task: Make, careless: Callable[[str, str], ServerSpec], what: str, tmp_path: Path
) -> None:
    server = careless("init", what)
    for _ in range(2):
        async with await sandbox.open(task(server)) as world:
            assert await value(world, "own_init") == "true"
            assert world.initial_state == {server.name: {"held": 1}}
    assert sandbox.explain()[server.name].startswith("forked; init in every world: after init there are 1")
    # Once in the snapshot that was given up, then in each world, and every init has its teardown.
    assert (tmp_path / "trace").read_text().split() == ["init", "teardown"] * 3


@pytest.mark.parametrize("what", ["thread", "socket", "sqlite"])
async def test_opened_by_the_import_means_no_fork(
    sandbox: Sandbox, task: Make, careless: Callable[[str, str], ServerSpec], what: str, tmp_path: Path
) -> None:
    server = careless("import", what)
    async with await sandbox.open(task(server)) as world:
        assert await value(world, "own_init") == "true"
        assert world.initial_state == {server.name: {"held": 1}}
    assert sandbox.explain()[server.name].startswith("process: after the import there are 1")
    assert (tmp_path / "trace").read_text().split() == ["init", "teardown"]


async def test_teardown_runs_where_init_ran(
    task: Make, careless: Callable[[str, str], ServerSpec], tmp_path: Path
) -> None:
    server = careless("never", "")
    async with Sandbox() as sandbox:
        for _ in range(3):
            async with await sandbox.open(task(server)) as world:
                assert await value(world, "own_init") == "false"
        assert (tmp_path / "trace").read_text().split() == ["init"]
    assert (tmp_path / "trace").read_text().split() == ["init", "teardown"]


@pytest.mark.parametrize("lifespan", ["", "yes"])
async def test_state_that_belongs_to_the_session(
    sandbox: Sandbox, task: Make, spec: Spec, lifespan: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    server = spec(f"sessions{lifespan}", file="sessions.py", env={"LIFESPAN": lifespan, "TRACE": str(trace)})
    async with await sandbox.open(task(server)) as a, await sandbox.open(task(server)) as b:
        assert a.init_result[server.name]["session"] != b.init_result[server.name]["session"]
        await value(a, "say", text="one")
        await value(b, "say", text="two")
        here = 1 if lifespan else 0
        assert await a.state() == {server.name: {"texts": ["one"], "lifespans_here": here}}
        assert await b.state() == {server.name: {"texts": ["two"], "lifespans_here": here}}
        before = trace.read_text().split() if lifespan else []
    why = "the server has a lifespan of its own" if lifespan else "its init asks for the session's Context"
    assert sandbox.explain()[server.name] == f"forked; init in every world: {why}"
    if lifespan:
        assert trace.read_text().split() == [*before, "left", "left"]


async def test_a_hook_that_raises_is_a_fault_of_init(sandbox: Sandbox, task: Make, spec: Spec, tmp_path: Path) -> None:
    file = tmp_path / "hooked.py"
    source = "import fastmcp\nmcp = fastmcp.FastMCP('x')\n"
    source += "def __stateward_after_fork__():\n    raise RuntimeError('no bytes')\n"
    file.write_text(source)
    with pytest.raises(SystemFault, match="RuntimeError: no bytes") as fault:
        await sandbox.open(task(spec("hooked", file=str(file))))
    assert fault.value.kind == "init"
