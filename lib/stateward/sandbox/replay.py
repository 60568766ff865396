"""Bring a fresh world to where a task's earlier conversation left it."""

from __future__ import annotations

from stateward.errors import SystemFault
from stateward.sandbox.world import World
from stateward.tasks.task import Task

_CAUSE_CHARACTERS = 300


async def replay_history(task: Task, world: World, *, deadline: float | None = None) -> None:
    """Make the tool calls of `task.history` on `world`, in order, each within `deadline` seconds.

    Built-in tools have no server, and calls marked ``error`` never reached one. A call that failed at the time may fail
    again, in the same words.

    Raises:
        SystemFault: "init" if a call fails that did not, so that the world is not where the conversation stands;
            "tool_timeout" or "sandbox" as `World.call` does.
    """
    builtin = {tool.name for tool in task.builtin_tools}
    answered = {m["tool_call_id"]: m["content"] for m in task.history if m["role"] == "tool"}
    number = 0
    for message in task.history:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            if function["name"] in builtin or call.get("error"):
                continue
            number += 1
            result = await world.call(
                function["name"], function["arguments"], call_id=f"history-{number}", deadline=deadline
            )
            if result.is_error and result.text != answered.get(call["id"]):
                raise SystemFault("init", f"history call {function['name']} failed: {result.text[:_CAUSE_CHARACTERS]}")
