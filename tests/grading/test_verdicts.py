"""What a check does, and the grade that it gets."""

from __future__ import annotations

import math
import sys

import pytest

from stateward.errors import UserError
from stateward.grading import Evidence, Grader
from stateward.outcome import Outcome
from stateward.tasks import Check

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "body", ["pass", "return None", "return True", "return 1", "return 1.0", "assert x.response == ''"]
)
async def test_pass(run, body: str) -> None:
    grade = await run(body)
    assert (grade.outcome, grade.reward) == (Outcome.PASS, 1.0)
    assert (grade.failure, grade.fault_kind, grade.fault_cause) == ({}, "", "")


@pytest.mark.parametrize(
    ("body", "reward"), [("return False", 0.0), ("return 0", 0.0), ("return 0.25", 0.25), ("return 0.999", 0.999)]
)
async def test_a_number_below_one_fails_with_that_reward(run, body: str, reward: float) -> None:
    grade = await run(body)
    assert (grade.outcome, grade.reward) == (Outcome.FAIL, reward)
    assert grade.failure["message"] == f"the check returned {body.removeprefix('return ')}"
    assert grade.failure["line"] == 2


@pytest.mark.parametrize("value", ["1.5", "-0.1", "float('nan')", "float('inf')", "'yes'", "{}", "[]", "(1,)", "x"])
async def test_any_other_value_is_void(run, value: str) -> None:
    grade = await run(f"return {value}")
    assert grade.outcome is Outcome.VOID
    assert math.isnan(grade.reward)
    assert grade.fault_kind == "grader"
    assert "must return nothing, a bool, or a reward" in grade.fault_cause


async def test_a_failed_assertion_names_its_line(run) -> None:
    grade = await run("a = 1\nassert a == 2, f'found {a}'")
    assert (grade.outcome, grade.reward) == (Outcome.FAIL, 0.0)
    assert grade.failure == {
        "file": "test_case/case.py",
        "line": 4,
        "text": "assert a == 2, f'found {a}'",
        "message": "found 1",
    }


async def test_the_line_is_the_innermost_of_the_checks_own_file(run) -> None:
    head = "from thinkingbox.common import RubricJudge\ndef inner(x):\n    assert x.effects['a'], 'inner'\n"
    grade = await run("inner(x)", head=head, evidence=Evidence(effects={"a": 0}))
    assert (grade.failure["line"], grade.failure["message"]) == (3, "inner")
    grade = await run("import unittest\nunittest.TestCase().assertEqual(1, 2)")
    assert (grade.failure["line"], grade.failure["text"]) == (4, "unittest.TestCase().assertEqual(1, 2)")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("x.effects['nothing']", "KeyError"),
        ("import not_there_at_all", "ModuleNotFoundError"),
        ("from thinkingbox.common import Nothing", "ImportError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("x.nothing", "AttributeError"),
        ("def down(): down()\ndown()", "RecursionError"),
    ],
)
async def test_another_exception_is_void(run, body: str, said: str) -> None:
    grade = await run(body)
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert said in grade.fault_cause
    assert "at test_case/case.py:" in grade.fault_cause


async def test_metadata_is_json(run) -> None:
    grade = await run("x.metadata.update(nan=float('nan'), set={1}, pair=(1, 2))")
    assert grade.outcome is Outcome.PASS
    assert grade.metadata == {"nan": None, "set": "{1}", "pair": [1, 2]}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def test_it(x:\n", "SyntaxError"),
        ("import not_there_at_all\ndef test_it(x): pass\n", "ModuleNotFoundError"),
        ("def other(x): pass\n", "KeyError"),
        ("assert False, 'while loading'\ndef test_it(x): pass\n", "AssertionError: while loading"),
    ],
)
async def test_a_file_that_does_not_load_is_void(grader, source: str, said: str) -> None:
    grade = await grader.grade(Check(file="c.py", function="test_it", source=source), Evidence())
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert said in grade.fault_cause


async def test_everything_that_a_check_may_look_at(run) -> None:
    evidence = Evidence(
        response="All done.",
        messages=[
            {"role": "system", "content": "Rules."},
            {"role": "user", "content": "Cancel it."},
            {
                "role": "assistant",
                "content": "I will.",
                "reasoning_content": "Hmm.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "cancel", "arguments": {"id": 1}}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "cancel", "content": "ok"},
            {"role": "assistant", "content": "It is 7.", "direct": True},
            {"role": "assistant", "content": "All done. <DONE>"},
        ],
        tool_calls=[
            {"id": "c1", "name": "cancel", "arguments": {"id": 1}, "result": "ok", "is_error": False},
            {"name": "hand_over", "arguments": {}, "result": "no", "is_error": True},
        ],
        effects={"shop": {"orders": [1]}},
        init_result={"shop": {"now": 7}},
        tool_direct_responses=["It is 7."],
        session_id="s",
        metadata={"scenario": "shop"},
    )
    grade = await run(
        """
        from thinkingbox.common.chat_types import Text, ToolCall, ParallelToolCall, ToolResponse, ToolCallResponse
        assert x.response == "All done."
        assert x.effects["shop"]["orders"] == [1]
        assert x.init_result["shop"]["now"] == 7
        assert (x.session_id, x.metadata) == ("s", {"scenario": "shop"})
        assert x.tool_direct_responses == ["It is 7."]
        assert x.tool_calls[-1].tool_call.name == "hand_over"
        assert x.tool_calls[0].tool_call.arguments.get("id") == 1
        assert x.tool_calls[0].tool_response.content == "ok"
        assert x.tool_calls[0].tool_call.id == x.tool_calls[0].tool_response.id == "c1"
        assert isinstance(x.tool_calls[0], ToolCallResponse) and isinstance(x.tool_calls[0].tool_call, ToolCall)
        assert [type(m) for m in x.messages] == [Text, Text, Text, Text, ParallelToolCall, ToolResponse, Text, Text]
        assert [m.tag for m in x.messages if isinstance(m, Text)] == ["text", "text", "think", "text", "direct", "text"]
        assert x.messages[-1].metadata == {"is_done": True}
        assert x.query() == "Cancel it."
        assert x.transcript() == (
            "User: Cancel it.\\n\\nAssistant: I will.\\n\\nAssistant: It is 7.\\n\\nAssistant: All done. <DONE>")
        assert x.transcript(limit=1) == "Assistant: All done. <DONE>"
        assert isinstance(x, TestContext) and isinstance(judge, Judge)
        assert x.model_dump()["tool_calls"][0]["tool_call"]["name"] == "cancel"
        """,
        evidence=evidence,
    )
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)


async def test_prints_and_metadata_come_back(run) -> None:
    grade = await run(
        """
        import sys
        print("seen", 1)
        print("also", file=sys.stderr)
        x.metadata["turns"] = 3
        x.metadata["odd"] = {1, 2}.__class__
        """,
        evidence=Evidence(metadata={"agent": "default"}),
    )
    assert grade.prints == "seen 1\nalso\n"
    assert grade.metadata["agent"] == "default"
    assert grade.metadata["turns"] == 3
    assert grade.metadata["odd"] == "<class 'set'>"


async def test_metadata_without_a_form_in_json_is_void(run) -> None:
    grade = await run("x.metadata['self'] = x.metadata")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert "Circular" in grade.fault_cause


async def test_text_that_is_not_unicode_passes_through(run) -> None:
    grade = await run("assert x.response == '\\ud800é'\nprint(x.response)", evidence=Evidence(response="\ud800é"))
    assert (grade.outcome, grade.prints) == (Outcome.PASS, "\ud800é\n")


async def test_a_check_sees_a_module_of_its_own(run) -> None:
    grade = await run(
        """
        import dataclasses
        @dataclasses.dataclass
        class Row:
            a: int
        assert Row(1) == Row(1) and __name__ != "__main__"
        """,
        head="from __future__ import annotations\n",
    )
    assert grade.outcome is Outcome.PASS, grade.fault_cause


async def test_grades_do_not_meet(run) -> None:
    head = "import thinkingbox.common as names\n"
    first = await run("names.left = 1; x.metadata['seen'] = 1", head=head)
    second = await run("assert not hasattr(names, 'left') and x.metadata == {}", head=head)
    assert (first.outcome, second.outcome) == (Outcome.PASS, Outcome.PASS)


async def test_random_numbers_differ_between_grades(run) -> None:
    seen = {(await run("import random; print(random.random())")).prints for _ in range(3)}
    assert len(seen) == 3


async def test_the_names_stay_in_the_grading_process(run) -> None:
    assert (await run("pass")).outcome is Outcome.PASS
    assert not [name for name in sys.modules if name.startswith("thinkingbox")]


@pytest.mark.parametrize("value", ["0.6 + 0.3 + 0.1", "0.05 + 0.55 + 0.3 + 0.1", "1 + 9e-7", "1 - 9e-7"])
async def test_weights_that_add_up_to_one_pass(run, value: str) -> None:
    grade = await run(f"return {value}")
    assert (grade.outcome, grade.reward) == (Outcome.PASS, 1.0)


@pytest.mark.parametrize(("value", "reward"), [("1 - 1e-5", 1 - 1e-5), ("0.3 - 0.2 - 0.1", 0.0)])
async def test_rewards_outside_of_the_tolerance_are_as_they_are(run, value: str, reward: float) -> None:
    grade = await run(f"return {value}")
    assert (grade.outcome, grade.reward) == (Outcome.FAIL, reward)


async def test_annotations_are_what_python_makes_of_them(run) -> None:
    grade = await run("def f(a: int) -> str: ...\nassert f.__annotations__ == {'a': int, 'return': str}")
    assert grade.outcome is Outcome.PASS


async def test_a_check_whose_file_does_not_load_is_refused() -> None:
    def check(head: str) -> Check:
        return Check(
            file="test_case/case.py", function="test_it", source=f"{head}\ndef test_it(x):\n    assert False\n"
        )

    async with Grader() as grader:
        await grader.load(check("import json"))
        with pytest.raises(UserError, match=r"test_it cannot be loaded(?s:.)*No module named 'beside'(?s:.)*case.py:1"):
            await grader.load(check("from beside import expect"))


@pytest.mark.parametrize(("value", "outcome"), [("True", Outcome.PASS), ("False", Outcome.FAIL)])
async def test_a_truth_value_of_numpy_is_one(run, value: str, outcome: Outcome) -> None:
    grade = await run(
        f"bool_ = type('bool_', (), {{'__module__': 'numpy', '__bool__': lambda _: {value}}})\nreturn bool_()"
    )
    assert grade.outcome is outcome


async def test_a_failure_of_pytest_fails() -> None:
    source = (
        # What pytest.fail raises, with the module that it says it is of; pytest itself need not be there.
        "import sys, types\n"
        "class Failed(BaseException): __module__ = 'builtins'\n"
        "sys.modules['_pytest.outcomes'] = types.SimpleNamespace(Failed=Failed)\n"
        "def test_it(x):\n    raise Failed('too few')\n"
    )
    async with Grader() as grader:
        grade = await grader.grade(Check(file="test_case/case.py", function="test_it", source=source), Evidence())
    assert (grade.outcome, grade.failure["message"], grade.failure["line"]) == (Outcome.FAIL, "too few", 5)
