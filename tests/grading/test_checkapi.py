"""The classes that test code sees, without a process around them."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.grading.checkapi.context import TestContext
from stateward.grading.checkapi.judge import Judge, JudgeFault
from stateward.grading.checkapi.messages import ParallelToolCall, Text, ToolCall, from_chat, transcript
from stateward.grading.checkapi.rewards import average_reward, match_score
from stateward.grading.checkapi.rubrics import RubricConfig, RubricJudge, RubricScore

#: A busy machine is not a failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def scored(rubrics: list[tuple[RubricConfig, bool]]) -> list[RubricScore]:
    return [
        RubricScore(
            criterion=r.criterion,
            weight=r.weight,
            rating=int(met),
            score=r.weight * met,
            is_penalty=r.is_penalty,
            penalty_type=r.penalty_type,
        )
        for r, met in rubrics
    ]


def rubric_judge(**options) -> RubricJudge:
    return RubricJudge(Judge(lambda conversations: ["Yes"] * len(conversations)), TestContext(), **options)


WEIGHTS = st.floats(0, 100, allow_nan=False)
RUBRIC = st.one_of(
    st.builds(RubricConfig, criterion=st.just("c"), weight=WEIGHTS),
    st.builds(RubricConfig, criterion=st.just("c"), weight=WEIGHTS, is_penalty=st.just(True)),
    st.builds(
        RubricConfig,
        criterion=st.just("c"),
        weight=st.floats(0, 1),
        is_penalty=st.just(True),
        penalty_type=st.just("multiplicative"),
    ),
)
RUBRICS = st.lists(st.tuples(RUBRIC, st.booleans()), max_size=6)


@UNHURRIED
@given(RUBRICS)
def test_a_reward_is_between_0_and_1(rubrics) -> None:
    assert 0.0 <= rubric_judge().compute_reward(scored(rubrics)) <= 1.0


@UNHURRIED
@given(RUBRICS)
def test_meeting_a_merit_never_costs_and_a_fault_never_pays(rubrics) -> None:
    base = rubric_judge().compute_reward(scored(rubrics))
    for number, (rubric, met) in enumerate(rubrics):
        other = [*rubrics[:number], (rubric, not met), *rubrics[number + 1 :]]
        changed = rubric_judge().compute_reward(scored(other))
        if rubric.is_penalty == met:  # a fault taken away, or a merit added
            assert changed >= base or math.isclose(changed, base)
        else:
            assert changed <= base or math.isclose(changed, base)


@UNHURRIED
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_all_merits_and_no_fault_is_1(weights: list[float]) -> None:
    rubrics = [(RubricConfig(criterion="c", weight=weight), True) for weight in weights]
    assert math.isclose(rubric_judge().compute_reward(scored(rubrics)), 1.0)


def test_the_documented_example() -> None:
    rubrics = [
        (RubricConfig(criterion="a", weight=50), True),
        (RubricConfig(criterion="b", weight=30), True),
        (RubricConfig(criterion="c", weight=20), False),
        (RubricConfig(criterion="d", weight=15, is_penalty=True), True),
        (RubricConfig(criterion="e", weight=0.5, is_penalty=True, penalty_type="multiplicative"), True),
    ]
    assert rubric_judge().compute_reward(scored(rubrics)) == 0.325


def test_a_reward_function_replaces_the_formula_within_bounds() -> None:
    assert rubric_judge(reward_fn=lambda scores: 7).compute_reward([]) == 1.0
    assert rubric_judge().compute_reward([]) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": -1},
        {"weight": float("nan")},
        {"weight": 2, "is_penalty": True, "penalty_type": "multiplicative"},
        {"weight": 1, "penalty_type": "other"},
    ],
)
def test_wrong_rubrics(wrong) -> None:
    with pytest.raises(ValueError):
        RubricConfig(criterion="c", **wrong)


def test_wrong_evaluations() -> None:
    with pytest.raises(ValueError, match="no rubrics"):
        rubric_judge().evaluate("a", [])
    with pytest.raises(ValueError, match="empty"):
        rubric_judge().evaluate("  ", [RubricConfig(criterion="c", weight=1)])
    with pytest.raises(ValueError, match="max_workers"):
        rubric_judge(max_workers=0)


def test_an_evaluation_can_be_asserted() -> None:
    result = rubric_judge().evaluate("a", [RubricConfig(criterion="c", weight=1)], global_threshold=0.5)
    assert result.assert_passed() == 1.0
    assert "threshold 0.500, passed" in result.message
    failed = rubric_judge(reward_fn=lambda _: 0.1).evaluate("a", [RubricConfig(criterion="c", weight=1)])
    with pytest.raises(AssertionError, match=r"0\.100 is below the threshold 0\.700"):
        failed.assert_passed()


ANSWERS = {
    "yes": True,
    "YES!": True,
    "No.": False,
    "'No'": False,
    "no way\nNO": False,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers(answer: str) -> None:
    assert Judge(lambda _: [answer]).yesno("q") is ANSWERS[answer]


@pytest.mark.parametrize(
    "answer",
    [
        *("", "perhaps", "yesterday", "nothing", "I cannot say no or yes now"),
        # The public framework takes these for a yes, since their last word counts too.
        *("No, since nothing says yes", "yes and no"),
    ],
)
def test_no_answer(answer: str) -> None:
    with pytest.raises(JudgeFault):
        Judge(lambda _: [answer]).yesno("q")


CHAT = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "t", "arguments": {}}, "error": "no"}]},
    {"role": "tool", "content": "r"},
    {"role": "assistant", "content": "d"},
]


def test_transcripts() -> None:
    messages = from_chat(CHAT)
    assert transcript(messages) == "User: a\n\nAssistant: b\n\nUser: c\n\nAssistant: d"
    assert transcript(messages, limit=1) == "Assistant: d"
    assert transcript(messages, limit=2) == "Assistant: b\n\nUser: c\n\nAssistant: d"
    assert transcript(messages, limit=9) == transcript(messages)
    assert transcript(messages, content_transform_fn=str.upper).startswith("User: A")
    with pytest.raises(ValueError, match="at least 0"):
        transcript(messages, limit=-1)
    hidden = Text(role="assistant", content="z", metadata={"tag": "think"})
    dummy = Text(role="user", content="z", metadata={"is_dummy": True})
    assert transcript([hidden, dummy]) == ""


def test_calls() -> None:
    (call,) = [m for m in from_chat(CHAT) if isinstance(m, ParallelToolCall)]
    assert call.tool_calls == [ToolCall(name="t", arguments={}, metadata={"error": "no"})]
    assert call.model_dump()["tool_calls"][0]["name"] == "t"


def test_query() -> None:
    assert TestContext(messages=from_chat(CHAT)).query() == "a"
    with pytest.raises(ValueError, match="no user message"):
        TestContext().query()


def test_rewards() -> None:
    assert average_reward({}) == 0.0
    assert average_reward({"a": 1.0, "b": 0.0}) == 0.5
    assert average_reward({"a": 1.0, "b": 0.0}, {"a": 3, "b": 1}) == 0.75
    assert average_reward({"a": 1.0}, {"z": 1}) == 0.0
    assert match_score({"a": 1, "b": 2}, {"a": 1, "b": 3}, partial=True) == 0.5
    assert match_score([1], [1]) == 1.0
    with pytest.raises(AssertionError, match="expected 2, found 1"):
        match_score(1, 2, is_critical=True)
    with pytest.raises(ValueError, match="cannot compare"):
        match_score(1, "1")
    with pytest.raises(ValueError, match="mappings"):
        match_score([1], [1], partial=True)
