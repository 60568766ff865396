"""A task's earlier conversation is replayed on its fresh world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stateward.errors import SystemFault
from stateward.sandbox import Sandbox, replay_history
from stateward.tasks.task import Task, ToolSpec


def said(name: str, arguments: dict[str, Any], answer: str, **extra: Any) -> list[dict[str, Any]]:
    call = {"id": answer, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": answer, "name": name, "content": answer},
    ]


async def test_the_calls_are_made_again_in_order(task: Callable[..., Task]) -> None:
    history = [
        {"role": "user", "content": "Write it down."},
        *said("append", {"key": "a", "text": "1"}, "1"),
        *said("append", {"key": "a", "text": "never reached a server"}, "not JSON", error="not JSON"),
        *said("report", {"reason": "a built-in tool has no server"}, "ok"),
        *said("append", {"key": "a", "text": "2"}, "12"),
    ]
    one = replace(task(), history=tuple(history), builtin_tools=(ToolSpec(name="report"),))
    async with Sandbox() as sandbox:
        for _ in range(2):
            async with await sandbox.open(one) as world:
                await replay_history(one, world)
                assert await world.state() == {"notes": {"notes": {"a": "12"}}}


async def test_a_call_that_failed_may_fail_again_but_no_other(task: Callable[..., Task]) -> None:
    async with Sandbox() as sandbox, await sandbox.open(task()) as world:
        words = (await world.call("fail", {}, call_id="1")).text
        await replay_history(replace(task(), history=tuple(said("fail", {}, words))), world)
        async with await sandbox.open(task()) as other:
            with pytest.raises(SystemFault, match="history call fail failed") as fault:
                await replay_history(replace(task(), history=tuple(said("fail", {}, "found"))), other)
        assert fault.value.kind == "init"
