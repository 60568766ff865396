"""Questions of a check to the judge, which lives outside the grading process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stateward.errors import SystemFault
from stateward.grading import Evidence, GradeLimits, Grader
from stateward.outcome import Outcome

from .conftest import FakeJudge, check

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def graded(run):
    """Grades a check's body with a judge."""

    async def go(judge: FakeJudge | None, body: str, **options):
        return await run(body, judge=judge, evidence=Evidence(response="It was <b>cancelled</b>."), **options)

    return go


@pytest.mark.parametrize(
    ("answer", "yes"),
    [
        ("Yes", True),
        ("no", False),
        ("Yes.", True),
        ("**No**", False),
        ("The answer is: yes", True),
        ("No, it is", False),
    ],
)
async def test_yes_and_no(graded, answer: str, yes: bool) -> None:
    grade = await graded(FakeJudge(lambda _: answer), "return judge.text_yesno(x.response, 'Was it?')")
    assert grade.outcome is (Outcome.PASS if yes else Outcome.FAIL)
    assert grade.judge_answers == [{"question": "Was it?", "answer": yes}]
    assert (grade.judge_usage.requests, grade.judge_usage.prompt) == (1, 10)


async def test_the_text_cannot_close_its_tags(graded) -> None:
    judge = FakeJudge()
    await graded(judge, "judge.text_yesno(x.response, 'Was it?')")
    (((_, user)),) = judge.asked
    assert user["content"] == "<message>\nIt was &lt;b&gt;cancelled&lt;/b&gt;.\n</message>\nWas it?"


async def test_every_kind_of_question(graded) -> None:
    judge = FakeJudge(
        lambda m: json.dumps({"motivation": "so", "answer": "Yes"}) if "JSON" in m[0]["content"] else "Yes"
    )
    grade = await graded(
        judge,
        """
        from thinkingbox.common.chat_types import Text
        assert judge.yesno("Is it?")
        assert judge.compare_yesno("a", "b", "Same?")
        assert judge.evaluate_bool(system="S", user="U")
        assert judge.no_repeat("a", []) and not judge.no_repeat("a", ["b"])
        assert judge.text_yesno_with_motivation("t", "q") == {"answer": True, "motivation": "so"}
        assert judge.drain_decisions() == [{"question": "q", "answer": True, "motivation": "so"}]
        assert judge.drain_decisions() == []
        said = judge._get_text_completion(messages=[Text(role="system", content="S"), Text(role="user", content="U")])
        assert said.content == "Yes"
        """,
    )
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)
    assert judge.asked[-1] == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert len(grade.judge_answers) == len(judge.asked) == grade.judge_usage.requests == 6


async def test_no_judge_is_void(graded) -> None:
    grade = await graded(None, "judge.yesno('a')")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "judge")
    assert "none is configured" in grade.fault_cause


async def test_a_check_that_does_not_ask_needs_no_judge(graded) -> None:
    assert (await graded(None, "assert judge")).outcome is Outcome.PASS


async def test_a_judge_that_is_down_is_void_whatever_the_check_catches(graded) -> None:
    def down(_: object) -> str:
        raise SystemFault("sampler", "connection refused")

    grade = await graded(FakeJudge(down), "try:\n    judge.yesno('a')\nexcept Exception:\n    return 1.0")
    assert (grade.outcome, grade.fault_kind, grade.fault_cause) == (Outcome.VOID, "judge", "connection refused")


@pytest.mark.parametrize("answer", ["Maybe", "", "  "])
async def test_an_answer_of_neither_kind_is_void(graded, answer: str) -> None:
    grade = await graded(FakeJudge(lambda _: answer), "try:\n    judge.yesno('a')\nexcept Exception:\n    pass")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "judge")


async def test_an_answer_that_is_not_the_json_asked_for_is_void(graded) -> None:
    grade = await graded(FakeJudge(lambda _: "Yes"), "judge.text_yesno_with_motivation('t', 'q')")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "judge")


async def test_a_bug_in_the_judge_is_raised(graded) -> None:
    def broken(_: object) -> str:
        raise LookupError("bug")

    with pytest.raises(LookupError, match="bug"):
        await graded(FakeJudge(broken), "judge.yesno('a')")


async def test_the_judges_time_is_not_the_checks(graded) -> None:
    async def slow() -> str:
        await asyncio.sleep(2.5)
        return "Yes"

    grade = await graded(FakeJudge(lambda _: slow()), "assert judge.yesno('a')", deadline=2.0)
    assert grade.outcome is Outcome.PASS, grade.fault_cause


async def test_an_endless_loop_of_questions_ends(graded) -> None:
    judge = FakeJudge()
    grade = await graded(judge, "while True: judge.evaluate_many([('S', 'U')] * 100)")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert "more than 500 questions" in grade.fault_cause
    assert len(judge.asked) == grade.judge_usage.requests == 500


async def test_time_goes_on_after_the_answer(graded) -> None:
    grade = await graded(FakeJudge(), "judge.yesno('a')\nwhile True: pass", deadline=0.5)
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "grader")
    assert "time limit of 0.5 s" in grade.fault_cause


async def test_questions_from_threads(graded) -> None:
    judge = FakeJudge(lambda m: "Yes" if m[1]["content"].endswith("7") else "No")
    grade = await graded(
        judge,
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(judge.yesno, map(str, range(20))))
        assert [n for n, yes in enumerate(answers) if yes] == [7, 17]
        """,
    )
    assert grade.outcome is Outcome.PASS, (grade.failure, grade.fault_cause)


async def test_concurrency_is_bounded() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return "Yes"

    judge = FakeJudge(lambda _: slow())
    async with Grader(GradeLimits(concurrency=3), judge=judge) as grader:
        grades = await asyncio.gather(*(grader.grade(check("judge.yesno('a')"), Evidence()) for _ in range(12)))
    assert {grade.outcome for grade in grades} == {Outcome.PASS}
    assert 1 < judge.most <= 3


RUBRICS = """
rubric_judge = RubricJudge(judge=judge, x=x, max_workers={workers})
rubrics = [
    rubric_judge.Config(criterion="one", weight=50),
    rubric_judge.Config(criterion="two", weight=30),
    rubric_judge.Config(criterion="not three", weight=20),
    rubric_judge.Config(criterion="four", weight=15, is_penalty=True, penalty_type="deduction"),
    rubric_judge.Config(criterion="five", weight=0.5, is_penalty=True, penalty_type="multiplicative"),
]
result = rubric_judge.evaluate(
    response=x.response, rubrics=rubrics, global_threshold={threshold}, throw_on_failure={throw})
assert [s.rating for s in result.scores] == [1, 1, 0, 1, 1]
assert result.passed == (result.reward >= {threshold})
return result.reward
"""


async def test_rubrics(graded) -> None:
    judge = FakeJudge(lambda m: "No" if "not three" in m[1]["content"] else "Yes")
    grade = await graded(judge, RUBRICS.format(workers=2, threshold=0.7, throw=False))
    # (50 + 30 - 15) / 100 × (1 - 0.5)
    assert (grade.outcome, grade.reward) == (Outcome.FAIL, 0.325)
    assert grade.metadata["rubric_reward"] == 0.325
    assert [s["score"] for s in grade.metadata["rubric_scores"]] == [50, 30, 0, 15, 0.5]
    assert judge.most == 2
    assert all("&lt;b&gt;" in messages[1]["content"] for messages in judge.asked)


async def test_rubrics_below_the_threshold_fail_the_check(graded) -> None:
    judge = FakeJudge(lambda m: "No" if "not three" in m[1]["content"] else "Yes")
    grade = await graded(judge, RUBRICS.format(workers=9, threshold=0.7, throw=True))
    assert (grade.outcome, grade.reward) == (Outcome.FAIL, 0.0)
    assert "0.325 is below the threshold 0.700" in grade.failure["message"]
    assert grade.metadata["rubric_reward"] == 0.325
    assert judge.most == 5


async def test_a_rubric_judge_as_a_fixture(graded) -> None:
    fixture = {"rubric_judge": ("thinkingbox.common.rubrics_judge.RubricJudge", {"max_workers": 4})}
    grade = await graded(
        FakeJudge(),
        "return rubric_judge.evaluate(x.response, [rubric_judge.Config(criterion='a', weight=1)]).reward",
        parameters="x, rubric_judge",
        fixtures=fixture,
    )
    assert grade.outcome is Outcome.PASS, grade.fault_cause


async def test_an_answer_that_was_cut_is_void() -> None:
    class Cut(FakeJudge):
        async def chat(self, messages: Any, **options: Any) -> Any:
            sample = await super().chat(messages, **options)
            sample.finish = "length"
            return sample

    case = check("assert judge.yesno('Is it?')")
    async with Grader(judge=Cut(lambda _: "Thinking of it, at first yes")) as grader:
        grade = await grader.grade(case, Evidence())
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "judge")
    assert "raise episode.judge.max_tokens" in grade.fault_cause


@pytest.mark.parametrize("answer", ["No, wait. Yes", "Yes and no"])
async def test_an_answer_that_says_both_is_void(graded, answer: str) -> None:
    grade = await graded(FakeJudge(lambda _: answer), "assert judge.yesno('Is it?')")
    assert (grade.outcome, grade.fault_kind) == (Outcome.VOID, "judge")
    assert "both yes and no" in grade.fault_cause
