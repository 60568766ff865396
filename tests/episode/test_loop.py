"""Whole episodes of the order desk: the real sandbox, checks and scripted customer; only the policy is a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stateward.episode import ChatPolicy, Environment, EpisodeRunner
from stateward.errors import FAULT_KINDS, SystemFault
from stateward.grading import Grader
from stateward.outcome import EpisodeRecord, Outcome
from stateward.policy.samplers.scripted import ScriptedChat
from stateward.policy.turn import ContextFull, ToolCall, Turn
from stateward.sandbox import Sandbox
from stateward.tasks.task import Task, ToolPolicy

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


def calls(*calls: Turn) -> Turn:
    """Several calls in one turn."""
    return Turn(calls=tuple(call for turn in calls for call in turn.calls))


async def test_a_turn_that_ends_the_conversation_runs_none_of_its_calls(
    play: Callable[..., Any], tasks: dict[str, Task]
) -> None:
    check = tasks[CANCEL].check
    source = (
        f"def {check.function}(x):\n"
        "    assert [(c.tool_call.name, c.tool_response.content) for c in x.tool_calls] == [('get_order', '')]\n"
        "    assert [type(m).__name__ for m in x.messages][-1] == 'ParallelToolCall'\n"
    )
    record = await play(
        [calls(call("cancel_order", order_id="ORD-1173"), call("get_order", order_id="ORD-1173"))],
        end_turn_tools=frozenset({"get_order"}),
        check=dataclasses.replace(check, source=source),
    )
    assert (record.outcome, record.finish, record.failure) == (Outcome.PASS, "end_turn_tool", {})
    assert record.state_diff == []
    assert (record.tool_calls, record.messages[-1]["role"]) == (1, "assistant")


async def test_a_direct_response_is_shown_after_the_tools_message(
    play: Callable[..., Any], tasks: dict[str, Task]
) -> None:
    seen: list[list[dict[str, Any]]] = []
    script = iter([call("get_order", order_id="ORD-1173"), say("Order ORD-1173 is for: blender")])

    def follow(messages: list[dict[str, Any]]) -> Turn:
        seen.append([dict(m) for m in messages])
        return next(script)

    check = tasks[CANCEL].check
    source = (
        f"def {check.function}(x):\n"
        "    assert x.tool_direct_responses == ['Order ORD-1173 is for: blender'], x.tool_direct_responses\n"
        "    assert x.response == 'Order ORD-1173 is for: blender'\n"
        "    assert [m.tag for m in x.messages if type(m).__name__ == 'Text' and m.role == 'assistant'] == [\n"
        "        'direct', 'text']\n"
    )
    direct = tuple(
        dataclasses.replace(t, direct_response="Order {order_id} is for: {item}") if t.name == "get_order" else t
        for t in tasks[CANCEL].tools
    )
    record = await play(follow, tools=direct, check=dataclasses.replace(check, source=source))
    assert (record.outcome, record.failure, record.fault_cause) == (Outcome.PASS, {}, "")
    shown = {"role": "assistant", "content": "Order ORD-1173 is for: blender"}
    # The policy goes on behind it, and an answer of its own with the same words is no direct response.
    assert [m["role"] for m in seen[1]][-2:] == ["tool", "assistant"]
    assert seen[1][-1] == shown
    assert [m.get("direct", False) for m in record.messages if m["role"] == "assistant"] == [False, True, False]


@pytest.mark.parametrize("template", ["{no_such_field}", "{status.nope}", "{item[0"])
async def test_a_result_that_does_not_fill_its_direct_response_is_an_error(
    play: Callable[..., Any], template: str
) -> None:
    tools = (ToolPolicy(name="get_order", direct_response=template),)
    record = await play([call("get_order", order_id="ORD-1173"), say("Sorry. <DONE>")], tools=tools)
    (answer,) = [m["content"] for m in record.messages if m["role"] == "tool"]
    assert answer == "Error in function execution"
    assert (record.tool_errors, record.finish) == (1, "done")


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_context_that_an_endpoint_calls_full_ends_what_was_begun(play: Callable[..., Any], turns: int) -> None:
    script = iter(GOLDEN[:turns])

    def follow(messages: list[dict[str, Any]]) -> Turn:
        for turn in script:
            return turn
        raise ContextFull("sampler", "maximum context length is 10 tokens")

    record = await play(follow)
    if turns:
        assert (record.outcome, record.finish, record.problems) == (Outcome.FAIL, "length", {"context_full": 1})
    else:
        assert (record.outcome, record.fault_kind) == (Outcome.VOID, "sampler")


async def test_a_mark_in_the_middle_of_a_text_ends_nothing(play: Callable[..., Any]) -> None:
    record = await play(
        [say("Which order do you want to cancel? I write <DONE> at the end."), say("So now.\n<DONE> \n")]
    )
    assert (record.turns, record.finish) == (2, "done")


async def test_the_judge_is_in_the_record(tasks: dict[str, Task], trial_of: Callable[..., Any]) -> None:
    check = tasks[CANCEL].check
    source = (
        f"def {check.function}(x, judge):\n"
        "    print('looking')\n"
        "    x.metadata['seen'] = 1\n"
        "    assert judge.yesno('Is it?')\n"
        "    assert judge.yesno('Really?')\n"
    )
    answers = iter(["Yes", "Yes", "Yes", ""])
    task = dataclasses.replace(tasks[CANCEL], check=dataclasses.replace(check, source=source))
    policy = ChatPolicy(model=ScriptedChat(lambda _: "<DONE>"), fingerprint="script", max_tokens_per_turn=100)
    async with Sandbox() as sandbox, Grader(judge=ScriptedChat(lambda _: next(answers))) as grader:
        runner = EpisodeRunner(sandbox=sandbox, grader=grader, policy=policy)
        asked = await runner.run(task, trial_of(task), seed=1)
        silent = await runner.run(task, trial_of(task), seed=1)
        assert asked.grading["isolation"] == grader.isolation != ""
    assert asked.outcome is Outcome.PASS
    assert asked.usage["judge"].requests == 2
    assert asked.grading["prints"] == "looking\n"
    assert asked.grading["metadata"] == {"seen": 1}
    assert [q["answer"] for q in asked.grading["judge"]] == [True, True]
    assert EpisodeRecord.from_json(asked.to_json()) == asked
    # A void has cost tokens too.
    assert (silent.outcome, silent.fault_kind, silent.usage["judge"].requests) == (Outcome.VOID, "judge", 2)
    old = asked.to_json()
    del old["grading"]
    assert EpisodeRecord.from_json(old).grading == {}


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


async def test_a_ledger_that_does_not_hold_together_voids_its_episode(
    environment: Environment, tasks: dict[str, Task], scripted: Callable[..., Any], trial_of: Callable[..., Any]
) -> None:
    class Broken:
        fingerprint = "script"

        def begin(self, *arguments: Any) -> Any:
            session = scripted(list(GOLDEN)).begin(*arguments)
            session.tokens = lambda: [][0]  # as `Ledger.check` raises
            return session

    runner = environment.runner(Broken(), keep_tokens=True)
    record = await runner.run(tasks[CANCEL], trial_of(tasks[CANCEL]), seed=1)
    assert (record.outcome, record.fault_kind, record.finish) == (Outcome.VOID, "bug", "fault")
    assert record.reward != record.reward
    assert "IndexError" in record.fault_cause


async def test_a_crashing_check_is_a_void_and_not_a_failure(play: Callable[..., Any], tasks: dict[str, Task]) -> None:
    check = tasks[CANCEL].check
    broken = dataclasses.replace(check, source=check.source.replace("assert final == expected", "final.nope()"))
    record = await play(GOLDEN, check=broken)
    assert (record.outcome, record.fault_kind) == (Outcome.VOID, "grader")
    assert record.final_state
