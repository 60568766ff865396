"""A task's limit of actions and its direct texts, as the framework has them that the format comes from."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stateward.episode import Environment, EpisodeRunner
from stateward.episode.users import UserReply
from stateward.policy.turn import ToolCall, Turn
from stateward.tasks.task import Task, ToolPolicy

pytestmark = pytest.mark.asyncio(loop_scope="module")

UID = "orders_ask.py:test_ask_which_order_then_cancel_blender"
#: A turn is spelled by its parts: k reasoning, t text, d text that ends the conversation, c a call, s a call of a tool
#: that shows its result directly, e a call that ends the conversation.
TOOLS = {"c": "get_customer", "s": "get_order", "e": "cancel_order"}
ARGUMENTS = {"c": {"customer_id": "nobody"}, "s": {"order_id": "ORD-1173"}, "e": {"order_id": "ORD-1173"}}
TEXTS = {"t": "Well?", "d": "Bye. <DONE>"}
SHOWN = "It is: {item}"

#: What the check sees goes into the record by way of its metadata.
CHECK = """
def test_it(x):
    x.metadata['seen'] = {
        'calls': [c.tool_call.name for c in x.tool_calls],
        'response': x.response,
        'direct': x.tool_direct_responses,
        'messages': [type(m).__name__ + ':' + str(getattr(m, 'tag', '')) for m in x.messages],
    }
"""

#: The same in the other framework: its loop, a model and a customer by script, a box of tools that notes calls.
THEIRS = """
import asyncio, json, sys
from types import SimpleNamespace
from thinkingbox.common.agent_session import AgentSession
from thinkingbox.common.agent_user_loop import run_agent_user_loop
from thinkingbox.common.chat_types import ParallelToolCall, Text, ToolCall, ToolDef
from thinkingbox.common.config_types import AgentConfig, HydratedTestCase, ScenarioConfig

given = json.load(sys.stdin)

class Box:
    init_result, session_id = {}, "s"
    def __init__(self): self.ran = []
    async def list_tools(self):
        schema = {"type": "object", "properties": {}}
        return [ToolDef(name=name, description="", input_schema=schema) for name in given["tools"].values()]
    async def call_tool(self, name, **arguments):
        self.ran.append(name)
        return json.dumps({"item": "blender"})
    async def get_effects(self): return {}

class Model:
    last_usage = None
    def __init__(self, script): self.script = iter(script)
    def add_tools(self, tools): self.tool_names = {tool.name for tool in tools}
    def add_messages(self, messages): pass
    def reset_messages(self): pass
    async def get_completion(self, *args, **kwargs):
        turn, out, calls = next(self.script, "d"), [], []
        for part in turn:
            if part == "k": out.append(Text(role="assistant", content="hm", metadata={"tag": "think"}))
            elif part in given["texts"]: out.append(Text(role="assistant", content=given["texts"][part]))
            else: calls.append(ToolCall(name=given["tools"][part], arguments={}, id=str(len(calls))))
        return out + ([ParallelToolCall(tool_calls=calls)] if calls else [])

class Customer(Model):
    async def get_completion(self, *args, **kwargs): return [Text(role="assistant", content="Go on.")]

async def one(script, limit):
    tools = [{"name": given["tools"]["c"]}, {"name": given["tools"]["s"], "direct_response": given["shown"]},
             {"name": given["tools"]["e"], "is_end_turn": True}]
    more = {} if limit is None else {"max_agent_sim_turns": limit}
    case = HydratedTestCase(uid="u", agent=AgentConfig(system_instructions="", builtin_tools=[]), query="q",
        scenario=ScenarioConfig(world_state={}, tools=tools), test_code="", user_context="c", **more)
    box = Box()
    made = lambda **kw: AgentSession.from_config(**kw, agent_model=Model(script))
    result = await run_agent_user_loop(case, agent_session_factory=made, mcp_proxy=box, user_model=Customer(()),
        store_test_context=True)
    assert not result.is_system_error, result.metadata
    x = result.test_context
    return {"finish": result.finish_reason, "ran": box.ran, "calls": [c.tool_call.name for c in x.tool_calls],
        "response": x.response, "direct": x.tool_direct_responses,
        "messages": [type(m).__name__ + ":" + str(getattr(m, "tag", "")) for m in x.messages]}

print(json.dumps([asyncio.run(one(script, limit)) for script, limit in given["cases"]]))
"""


def turn_of(spelled: str) -> Turn:
    calls = [ToolCall(id=str(i), name=TOOLS[p], arguments=ARGUMENTS[p]) for i, p in enumerate(spelled) if p in TOOLS]
    text = "".join(TEXTS.get(part, "") for part in spelled)
    return Turn(reasoning="hm" if "k" in spelled else "", text=text, calls=tuple(calls))


class Insists:
    """A customer who always wants more."""

    async def reply(self, messages: list[dict[str, Any]], user_context: str, seed: int) -> UserReply:
        return UserReply(text="Go on.")


Play = Callable[..., Any]


@pytest.fixture
def play(environment: Environment, tasks: dict[str, Task], scripted: Play, trial_of: Play) -> Play:
    base = tasks[UID]
    task = dataclasses.replace(
        base,
        tools=tuple(ToolPolicy(name=n, direct_response=SHOWN if p == "s" else None) for p, n in TOOLS.items()),
        end_turn_tools=frozenset({TOOLS["e"]}),
        check=dataclasses.replace(base.check, function="test_it", source=CHECK),
    )

    async def run(script: list[str], limit: int | None) -> dict[str, Any]:
        remaining = iter([*script, *["d"] * 3])
        runner: EpisodeRunner = environment.runner(scripted(lambda _: turn_of(next(remaining))))
        limited = dataclasses.replace(task, max_agent_turns=limit)
        record = await dataclasses.replace(runner, user=Insists()).run(limited, trial_of(limited), seed=1)
        assert record.fault_cause == ""
        ran = [m["name"] for m in record.messages if m["role"] == "tool"]
        return {"finish": record.finish, "ran": ran, **record.grading["metadata"]["seen"]}

    return run


@pytest.mark.parametrize(
    ("script", "limit", "finish", "ran", "seen", "response"),
    [
        # Text and calls of one turn are two actions.
        (["tc", "tc", "d"], 5, "done", "cc", "cc", "Bye. <DONE>"),
        (["tc", "tc", "d"], 4, "agent_limit", "cc", "cc", "Well?"),
        # A text that takes the last one: the calls behind it stay a wish.
        (["tc", "tc", "d"], 3, "agent_limit", "c", "c", "Well?"),
        (["ktc", "d"], 1, "agent_limit", "", "", "Well?"),
        (["t", "t", "d"], 2, "agent_limit", "", "", "Well?"),  # and no customer is asked any more
        # Calls that take it are all run; the check sees the first.
        (["ccc", "d"], 1, "agent_limit", "ccc", "c", ""),
        (["ccc", "d"], 2, "done", "ccc", "ccc", "Bye. <DONE>"),
        # A direct text is an action as well, and behind it comes the first message of one more turn.
        (["s", "ct"], 1, "agent_limit", "s", "s", ""),
        (["s", "tc"], 2, "agent_limit", "s", "s", "Well?"),
        (["s", "kd"], 2, "agent_limit", "s", "s", ""),
        (["s", "d"], 2, "done", "s", "s", "Bye. <DONE>"),
        (["s", "c"], 2, "agent_limit", "s", "s", ""),
        (["te"], 1, "end_turn_tool", "", "e", "Well?"),
        (["s", "te"], 2, "agent_limit", "s", "se", "Well?"),
        (["d"], 0, "agent_limit", "", "", ""),
    ],
)
async def test_the_limit_counts_actions(
    play: Play, script: list[str], limit: int, finish: str, ran: str, seen: str, response: str
) -> None:
    found = await play(script, limit)
    assert found["finish"] == finish
    assert found["ran"] == [TOOLS[part] for part in ran]
    assert found["calls"] == [TOOLS[part] for part in seen]
    assert found["response"] == response


@pytest.mark.parametrize(("calls", "shown"), [("s", 1), ("ss", 1), ("cs", 1), ("sc", 0)])
async def test_only_the_last_call_of_a_turn_shows_its_result(play: Play, calls: str, shown: int) -> None:
    found = await play([calls, "d"], None)
    assert found["direct"] == ["It is: blender"] * shown
    assert found["messages"].count("Text:direct") == shown


def their_answers(given: dict[str, Any]) -> list[dict[str, Any]]:
    command, where = [sys.executable, "-c", THEIRS], os.environ["THINKINGBOX"]
    done = subprocess.run(command, input=json.dumps(given), cwd=where, capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.mark.skipif("THINKINGBOX" not in os.environ, reason="THINKINGBOX names no checkout of the public framework")
async def test_against_the_real_framework(play: Play) -> None:
    draw = random.Random(7)
    turns = ["t", "c", "cc", "tc", "s", "ss", "sc", "cs", "ts", "dc", "kt", "kc", "ktc", "ks", "e", "te", "d", ""]
    cases: list[tuple[list[str], int | None]] = [
        (draw.choices(turns, k=draw.randint(1, 4)), draw.choice([None, 0, 1, 2, 3, 4, 5, 6])) for _ in range(300)
    ]
    given = {"cases": cases, "tools": TOOLS, "texts": TEXTS, "shown": SHOWN}
    for (script, limit), theirs in zip(cases, their_answers(given), strict=True):
        ours = await play(script, limit)
        if limit == 0:  # their conversation has not even the query then
            theirs["messages"] = ours["messages"]
        assert ours == theirs, (script, limit)
