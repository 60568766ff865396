"""Whatever a server or a check does, its episode ends in time, the record says why, and the next one is as ever."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stateward.episode import Environment, EpisodeLimits
from stateward.grading import GradeLimits, Grader
from stateward.outcome import EpisodeRecord, Outcome
from stateward.policy.turn import ToolCall, Turn
from stateward.sandbox import Sandbox, SandboxLimits
from stateward.tasks.task import Check, ServerSpec, Task

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVERS = Path(__file__).parents[1] / "sandbox" / "servers"
CHECK = "assert x.effects['notes']['notes'] == {'a': 'b'}"
OPEN_SECONDS = 12.0
#: Far above what any of these takes on a quiet machine, far below what waiting for the fault itself would take.
MOST_SECONDS = 60.0

Play = Callable[..., Any]


def make_task(*names: str, check: str = CHECK, world: dict[str, Any] | None = None) -> Task:
    files = [Path(name) if "/" in name else SERVERS / f"{name}.py" for name in names]
    specs = tuple(ServerSpec(name=file.stem, command=(sys.executable, str(file))) for file in files)
    source = f"def test_it(x):\n    {check}\n"
    return Task(
        uid=f"faults.py:test_{'_'.join(spec.name for spec in specs)}",
        domain="faults",
        system="",
        query="Do it.",
        check=Check(file="faults.py", function="test_it", source=source),
        world={spec.name: (world or {}).get(spec.name, {}) for spec in specs},
        servers=specs,
    )


def call(name: str, **arguments: Any) -> Turn:
    return Turn(calls=(ToolCall(id=f"call-{name}", name=name, arguments=arguments),))


GOOD = make_task("notes")
WRITE, END = call("write", key="a", text="b"), Turn(text="Done. <DONE>")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small() -> AsyncIterator[Environment]:
    """An environment with narrow limits."""
    limits = SandboxLimits(open_deadline_seconds=OPEN_SECONDS, max_output_bytes=100_000)
    async with Sandbox(limits) as sandbox, Grader(GradeLimits(deadline_seconds=3.0)) as grader:
        await (await sandbox.open(GOOD)).aclose()  # the import is not what these tests measure
        bounds = EpisodeLimits(tool_deadline_seconds=3.0, max_seconds=MOST_SECONDS)
        yield Environment(sandbox=sandbox, grader=grader, user=None, limits=bounds)


@pytest.fixture
def play(small: Environment, scripted: Play, trial_of: Play) -> Play:
    async def run(task: Task, *script: Turn) -> EpisodeRecord:
        began = time.monotonic()
        record: EpisodeRecord = await small.runner(scripted(script)).run(task, trial_of(task), seed=1)
        assert time.monotonic() - began < MOST_SECONDS
        return record

    return run


async def next_is_as_ever(play: Play) -> None:
    record = await play(GOOD, WRITE, END)
    assert (record.outcome, record.fault_cause) == (Outcome.PASS, "")
    assert record.state_diff == [["notes.notes.a", None, "b"]]


@pytest.mark.parametrize(
    ("bad", "kind", "cause"),
    [
        (call("hang", seconds=3600), "tool_timeout", "the tool 'hang' took longer than 3 s"),
        (call("crash"), "sandbox", "exit status 3; last output: about to crash"),
    ],
)
async def test_a_tool_that_breaks_its_server_voids_the_episode(play: Play, bad: Turn, kind: str, cause: str) -> None:
    record = await play(GOOD, WRITE, bad, END)
    assert (record.outcome, record.fault_kind, record.finish) == (Outcome.VOID, kind, "fault")
    assert cause in record.fault_cause
    assert record.reward != record.reward
    assert [m["role"] for m in record.messages] == ["system", "user", "assistant", "tool", "assistant"]
    await next_is_as_ever(play)


@pytest.mark.parametrize(
    ("bad", "answer", "errors"),
    [
        (call("shout", lines=2000), "shouted", 0),
        (call("big", size=10_000_000), "The tool's output of 10000000 bytes is over the limit of 100000.", 1),
        (call("bomb"), "bomb", 1),
        (call("fail"), "fail", 1),
    ],
)
async def test_what_a_tool_reports_itself_is_for_the_policy(play: Play, bad: Turn, answer: str, errors: int) -> None:
    record = await play(GOOD, WRITE, bad, END)
    assert (record.outcome, record.fault_cause, record.tool_errors) == (Outcome.PASS, "", errors)
    assert answer in [m["content"] for m in record.messages if m["role"] == "tool"][1]
    await next_is_as_ever(play)


@pytest.mark.parametrize(
    ("check", "cause"),
    [
        ("while True: pass", "the check passed its time limit of 3 s"),
        ("__import__('os')._exit(4)", "without a verdict: exit status 4"),
        ("open('/no/such/file')", "FileNotFoundError"),
    ],
)
async def test_a_check_that_breaks_voids_the_episode(play: Play, check: str, cause: str) -> None:
    record = await play(make_task("notes", check=check), WRITE, END)
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "grader")
    assert cause in record.fault_cause
    assert record.final_state == {"notes": {"notes": {"a": "b"}}}
    await next_is_as_ever(play)


@pytest.mark.parametrize(
    ("source", "cause", "seconds"),
    [
        ("import no_such_module_at_all", "No module named 'no_such_module_at_all'", OPEN_SECONDS),
        ("import time; time.sleep(3600)", "longer than", 2.0),
    ],
)
async def test_a_server_that_cannot_be_imported(
    small: Environment,
    play: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    cause: str,
    seconds: float,
) -> None:
    (tmp_path / "broken.py").write_text(source)
    with monkeypatch.context() as patch:
        patch.setattr(small.sandbox, "_limits", SandboxLimits(open_deadline_seconds=seconds))
        record = await play(make_task(str(tmp_path / "broken.py")), END)
    assert (record.outcome, record.fault_kind, record.messages) == (Outcome.VOID, "sandbox", [])
    assert cause in record.fault_cause
    await next_is_as_ever(play)


async def test_an_init_that_raises(play: Play) -> None:
    record = await play(make_task("notes", world={"notes": {"refuse": "the data is bad"}}), WRITE, END)
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "init")
    assert "server 'notes'" in record.fault_cause
    await next_is_as_ever(play)


async def test_two_servers_in_one_world(play: Play) -> None:
    check = f"{CHECK} and x.effects['counter'] == {{'value': 7}}"
    both = make_task("notes", "counter", check=check, world={"counter": {"start": 5}})
    for _ in range(2):
        record = await play(both, WRITE, call("add", amount=2), END)
        assert (record.outcome, record.fault_cause, record.failure) == (Outcome.PASS, "", {})
        assert list(record.final_state) == ["notes", "counter"]


async def test_state_never_leaks_between_episodes_of_a_task(play: Play) -> None:
    first = await play(GOOD, call("append", key="a", text="b"), END)
    second = await play(GOOD, call("append", key="a", text="b"), END)
    untouched = await play(GOOD, END)
    assert (first.outcome, second.outcome, untouched.outcome) == (Outcome.PASS, Outcome.PASS, Outcome.FAIL)
    assert first.initial_state_hash == second.initial_state_hash == untouched.initial_state_hash
    assert untouched.state_diff == []
    changed = await play(dataclasses.replace(GOOD, world={"notes": {"notes": {"x": "y"}}}), END)
    assert changed.initial_state_hash != first.initial_state_hash
