"""An episode that begins in the middle of a conversation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stateward.episode import Environment
from stateward.outcome import Outcome
from stateward.policy.turn import Turn
from stateward.tasks.task import Task

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANCEL = "orders_ask.py:test_ask_which_order_then_cancel_blender"


def cancelled(order: str, argument: str = "order_id") -> list[dict[str, Any]]:
    function = {"name": "cancel_order", "arguments": {argument: order}}
    return [
        {"role": "user", "content": f"Please cancel {order}."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "h1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "h1", "name": "cancel_order", "content": "{}"},
        {"role": "assistant", "content": "Done."},
    ]


async def test_the_history_is_read_and_its_calls_are_in_the_world(
    environment: Environment, tasks: dict[str, Task], scripted: Callable[..., Any], trial_of: Callable[..., Any]
) -> None:
    task = dataclasses.replace(tasks[CANCEL], history=tuple(cancelled("ORD-1173")))
    seen: list[list[dict[str, Any]]] = []

    def follow(messages: list[dict[str, Any]]) -> Turn:
        seen.append(list(messages))
        return Turn(text="Goodbye. <DONE>")

    record = await environment.runner(scripted(follow)).run(task, trial_of(task), seed=1)
    assert (record.outcome, record.fault_cause) == (Outcome.PASS, "")
    assert [m["role"] for m in seen[0]] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert seen[0][-1]["content"] == task.query
    assert record.tool_calls == 0  # the policy made none of them


async def test_a_history_that_cannot_be_replayed_is_a_void(
    environment: Environment, tasks: dict[str, Task], scripted: Callable[..., Any], trial_of: Callable[..., Any]
) -> None:
    task = dataclasses.replace(tasks[CANCEL], history=tuple(cancelled("ORD-1173", "no_such_argument")))
    record = await environment.runner(scripted([])).run(task, trial_of(task), seed=1)
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "init")
    assert "history call cancel_order failed" in record.fault_cause
