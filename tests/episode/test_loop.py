"""Whole episodes of the order desk: the real sandbox, checks and scripted customer; only the policy is a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stateward.episode import Environment
from stateward.errors import FAULT_KINDS, SystemFault
from stateward.outcome import EpisodeRecord, Outcome
from stateward.policy.turn import ToolCall, Turn
from stateward.tasks.task import Task

# One sandbox and one grader for all episodes, as in a campaign.
pytestmark = pytest.mark.asyncio(loop_scope="module")

CANCEL = "orders_ask.py:test_ask_which_order_then_cancel_blender"


def call(name: str, **arguments: Any) -> Turn:
    return Turn(calls=(ToolCall(id=f"call-{name}", name=name, arguments=arguments),))


def say(text: str) -> Turn:
    return Turn(text=text)


GOLDEN = (
    say("Which order do you want to cancel?"),
    call("get_order", order_id="ORD-1173"),
    say("Shall I cancel order ORD-1173? Please confirm."),
    call("cancel_order", order_id="ORD-1173"),
    say("Order ORD-1173 is cancelled. <DONE>"),
)


@pytest.fixture
def play(
    environment: Environment, tasks: dict[str, Task], scripted: Callable[..., Any], trial_of: Callable[..., Any]
) -> Callable[..., Any]:
    async def run(script: Any, *, uid: str = CANCEL, **changes: Any) -> EpisodeRecord:
        task = dataclasses.replace(tasks[uid], **changes)
        return await environment.runner(scripted(script)).run(task, trial_of(task), seed=1)

    return run


async def test_the_right_calls_pass_and_the_record_tells_the_story(play: Callable[..., Any]) -> None:
    record = await play(GOLDEN)
    assert (record.outcome, record.reward, record.finish, record.fault_kind) == (Outcome.PASS, 1.0, "done", "")
    assert (record.turns, record.tool_calls, record.tool_errors) == (5, 2, 0)
    assert record.domain == "orders"
    assert [m["role"] for m in record.messages] == [
        *("system", "user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"),
        "assistant",
    ]
    assert [row[1:] for row in record.state_diff] == [["processing", "cancelled"]]
    assert record.final_state["orders"]["orders"]["ORD-1173"]["status"] == "cancelled"
    assert record.initial_state_hash
    assert record.usage["policy"].requests == 5
    assert EpisodeRecord.from_json(record.to_json()) == record


async def test_an_unrequested_change_fails_with_the_checks_line(play: Callable[..., Any]) -> None:
    record = await play([*GOLDEN[:4], call("change_quantity", order_id="ORD-1197", quantity=1), GOLDEN[4]])
    assert (record.outcome, record.reward, record.tool_errors) == (Outcome.FAIL, 0.0, 0)
    assert record.failure["line"] > 1
    assert "ORD-1197" in record.failure["message"]


async def test_two_episodes_of_a_task_do_not_see_each_other(play: Callable[..., Any]) -> None:
    first, second = await play(GOLDEN), await play([say("Sorry, no. <DONE>")])
    assert first.outcome is Outcome.PASS
    assert second.state_diff == []
    assert second.outcome is Outcome.FAIL
    assert first.initial_state_hash == second.initial_state_hash


async def test_a_bad_call_is_an_observation_and_the_episode_goes_on(play: Callable[..., Any]) -> None:
    broken = Turn(calls=(ToolCall(id="x", name="get_order", error="the arguments are not JSON"),))
    record = await play([call("get_ordr", order_id="ORD-1173"), broken, call("get_order", wrong=1), *GOLDEN])
    assert record.outcome is Outcome.PASS
    assert record.tool_errors == 3
    answers = [m["content"] for m in record.messages if m["role"] == "tool"]
    assert "there is no tool 'get_ordr'" in answers[0]
    assert answers[1] == "Error: the arguments are not JSON"


@pytest.mark.parametrize(
    ("changes", "script", "finish"),
    [
        ({"max_agent_turns": 2}, GOLDEN, "agent_limit"),
        ({"max_user_turns": 1}, GOLDEN, "user_limit"),
        ({"user_context": ""}, GOLDEN, "no_user"),
        ({"end_turn_tools": frozenset({"get_order"})}, GOLDEN, "end_turn_tool"),
        ({}, [say("There is nothing more to say.")], "user_done"),
    ],
)
async def test_every_way_to_end(play: Callable[..., Any], changes: dict[str, Any], script: Any, finish: str) -> None:
    record = await play(script, **changes)
    assert (record.finish, record.outcome) == (finish, Outcome.FAIL)


async def test_a_fault_voids_with_its_cause_and_keeps_what_was_said(play: Callable[..., Any]) -> None:
    def down(messages: list[dict[str, Any]]) -> Turn:
        if any(m["role"] == "tool" for m in messages):
            raise SystemFault("sampler", "connection refused")
        return GOLDEN[1]

    record = await play(down)
    assert (record.outcome, record.fault_kind, record.fault_cause) == (Outcome.VOID, "sampler", "connection refused")
    assert record.reward != record.reward
    assert record.finish == "fault"
    assert record.messages[-1]["role"] == "tool"


async def test_a_bug_of_ours_voids_one_episode_with_its_traceback(play: Callable[..., Any]) -> None:
    record = await play(lambda messages: [][0])
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "bug")
    assert "IndexError" in record.fault_cause
    assert set(FAULT_KINDS) >= {record.fault_kind}


async def test_a_crashing_check_is_a_void_and_not_a_failure(play: Callable[..., Any], tasks: dict[str, Task]) -> None:
    check = tasks[CANCEL].check
    broken = dataclasses.replace(check, source=check.source.replace("assert final == expected", "final.nope()"))
    record = await play(GOLDEN, check=broken)
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "grader")
    assert record.final_state
