"""One session of the gateway: what ends an episode, what a tool shows directly, and an earlier conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from stateward.grading import Grader
from stateward.sandbox import Sandbox
from stateward.tasks.task import Check, Task, ToolPolicy, ToolSpec

pytestmark = pytest.mark.slow
openenv_environment = pytest.importorskip("stateward.sandbox.openenv_environment", reason="openenv is not installed")
WorldAction = openenv_environment.WorldAction


@asynccontextmanager
async def session(task: Task, check: str) -> AsyncIterator[Any]:
    task = replace(task, check=Check(file="f.py", function="test", source=f"def test(x):\n    {check}\n"))
    async with Sandbox() as sandbox, Grader() as grader:
        environment = openenv_environment.WorldEnvironment([task], sandbox, grader, asyncio.get_running_loop())
        first = await environment.reset_async()
        yield environment, first
        await asyncio.to_thread(environment.close)


def call(tool: str, **arguments: Any) -> Any:
    return WorldAction(kind="call", tool=tool, arguments=arguments)


async def test_a_tool_that_ends_the_conversation_is_not_run(task: Callable[..., Task]) -> None:
    ending = replace(task(), end_turn_tools=frozenset({"write"}))
    check = "assert [(c.tool_call.name, c.tool_response.content) for c in x.tool_calls] == [('write', '')]"
    async with session(ending, f"{check} and x.response == 'bye'") as (environment, _first):
        end = await environment.step_async(
            WorldAction(kind="call", tool="write", arguments={"key": "a", "text": "b"}, response="bye")
        )
        assert (end.done, end.reward, end.outcome) == (True, 1.0, "pass")
        assert environment.state.final_state == {"notes": {"notes": {}}}


async def test_a_built_in_tool_has_no_server(task: Callable[..., Task]) -> None:
    one = replace(task(), builtin_tools=(ToolSpec(name="think"),))
    async with session(one, "assert x.tool_calls[0].tool_response.content == 'ok'") as (environment, first):
        assert "think" in {tool["function"]["name"] for tool in first.tools}
        assert (await environment.step_async(call("think", thought="hm"))).text == "ok"
        assert (await environment.step_async(WorldAction(kind="finish"))).outcome == "pass"


async def test_a_direct_response(task: Callable[..., Task]) -> None:
    policies = (ToolPolicy(name="big", direct_response="{seen}"), ToolPolicy(name="echo", direct_response="Saw {seen}"))
    shown = replace(task(tools=policies))
    async with session(shown, "assert x.tool_direct_responses == ['Saw 7']") as (environment, _first):
        wrong = await environment.step_async(call("big", size=3))
        assert (wrong.text, wrong.is_error, wrong.direct) == ("Error in function execution", True, "")
        right = await environment.step_async(call("echo", value={"seen": 7}))
        assert (right.is_error, right.direct) == (False, "Saw 7")
        assert (await environment.step_async(WorldAction(kind="finish"))).outcome == "pass"


async def test_the_history_is_replayed_and_told(task: Callable[..., Task]) -> None:
    function = {"name": "write", "arguments": {"key": "a", "text": "b"}}
    history = (
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "name": "write", "content": "written"},
    )
    check = "assert x.effects['notes']['notes'] == {'a': 'b'} and not x.tool_calls"
    async with session(replace(task(), history=history), check) as (environment, first):
        assert first.history == list(history)
        assert (await environment.step_async(WorldAction(kind="finish"))).outcome == "pass"
