"""Filtering and refilling against a ten-line reference in numpy, on random outcomes including voids.

With Verl's advantages behind them: tests/verl/test_step.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.outcome import Outcome
from stateward.training.groups import (
    GroupReport,
    SessionReport,
    SignalExhausted,
    StepGroups,
    StepStopped,
    Verdict,
    verdict,
)

PASS, FAIL, VOID = Outcome.PASS, Outcome.FAIL, Outcome.VOID
NAN = float("nan")


def session(outcome: Outcome, voids: int = 0) -> SessionReport:
    reward = {PASS: 1.0, FAIL: 0.0, VOID: NAN}[outcome]
    return SessionReport(outcome=outcome, reward=reward, voids=("sandbox",) * (voids + (outcome is VOID)))


def group(number: int, outcomes: list[Outcome]) -> GroupReport:
    return GroupReport(key=f"g{number}", uid=f"t{number}", sessions=tuple(session(o) for o in outcomes))


def step(wanted: int = 3, size: int = 4, rounds: int = 2, void_share: float = 1.0) -> StepGroups:
    return StepGroups(wanted=wanted, group_size=size, max_rounds=rounds, max_void_share=void_share)


def fill(groups: StepGroups, stream: list[list[Outcome]]) -> list[int]:
    """Drive a step with the groups of `stream` in turn; the numbers of the kept ones."""
    numbers = iter(range(len(stream)))
    running: list[int] = []
    while not groups.full:
        running += [next(numbers) for _ in range(groups.hand_out())]
        groups.add(group(running[0], stream[running.pop(0)]))
    return [int(report.key[1:]) for report in groups.kept]


def reference(stream: list[list[Outcome]], wanted: int, budget: int) -> tuple[list[int], int] | None:
    """Numbers of the kept groups and how many were drawn, or None if the budget does not suffice; in numpy."""
    value = {PASS: 1.0, FAIL: 0.0, VOID: np.nan}
    rewards = np.array([[value[o] for o in outcomes] for outcomes in stream[:budget]])
    signal = rewards.std(axis=1) > 0  # NaN, that is a void anywhere, compares false
    kept = np.flatnonzero(signal)[:wanted]
    if len(kept) < wanted:
        return None
    # Nothing is drawn ahead: after the first `wanted`, one more for each that is lost, so the last kept is the last.
    return kept.tolist(), max(wanted, int(kept[-1]) + 1)


outcome_lists = st.lists(st.sampled_from([PASS, FAIL, VOID]), min_size=4, max_size=4)


@settings(deadline=None, max_examples=300)
@given(
    stream=st.lists(outcome_lists, min_size=15, max_size=15),
    wanted=st.integers(1, 4),
    rounds=st.integers(1, 3),
)
def test_filtering_and_refilling_agree_with_numpy(stream: list[list[Outcome]], wanted: int, rounds: int) -> None:
    budget = wanted * (1 + rounds)
    expected = reference(stream, wanted, min(budget, len(stream)))
    groups = step(wanted=wanted, rounds=rounds)
    if budget > len(stream):
        return
    if expected is None:
        with pytest.raises(StepStopped, match="groups carry a signal") as caught:
            fill(groups, stream)
        # A dead end unless the groups that were void for a fault could have made up the step.
        missing = wanted - len(groups.kept)
        assert isinstance(caught.value, SignalExhausted) is (missing > groups.void_groups)
        assert groups.handed_out == budget
    else:
        kept, drawn = expected
        assert fill(groups, stream) == kept
        assert groups.handed_out == drawn
        assert groups.refills == drawn - wanted
    done = len(groups.kept) + len(groups.replaced)
    assert groups.signal_free + groups.void_groups == done - len(groups.kept)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([PASS, FAIL], Verdict.KEPT),
        ([PASS, PASS], Verdict.SIGNAL_FREE),
        ([FAIL, FAIL], Verdict.SIGNAL_FREE),
        ([PASS, VOID], Verdict.VOID),
        ([PASS, FAIL, VOID], Verdict.VOID),
        ([VOID, VOID], Verdict.VOID),
    ],
)
def test_verdict(outcomes: list[Outcome], expected: Verdict) -> None:
    assert verdict(outcomes) is expected


def test_a_group_whose_rewards_differ_but_whose_outcomes_do_not_is_signal_free() -> None:
    sessions = (SessionReport(outcome=FAIL, reward=0.2), SessionReport(outcome=FAIL, reward=0.7))
    groups = step(wanted=1, size=2)
    groups.hand_out()
    assert groups.add(GroupReport(key="g0", uid="t", sessions=sessions)) is Verdict.SIGNAL_FREE


def test_zero_rounds_turn_the_filter_off_but_still_replace_voids() -> None:
    groups = step(wanted=2, size=2, rounds=0)
    assert groups.hand_out() == 2
    assert groups.add(group(0, [PASS, PASS])) is Verdict.KEPT
    assert groups.add(group(1, [PASS, VOID])) is Verdict.VOID
    assert groups.hand_out() == 1
    assert groups.add(group(2, [FAIL, FAIL])) is Verdict.KEPT
    assert groups.full
    assert groups.signal_free == 2


def test_exhaustion_says_the_shares_and_what_to_do() -> None:
    groups = step(wanted=2, size=2, rounds=1)
    with pytest.raises(StepStopped) as caught:
        fill(groups, [[PASS, PASS], [PASS, FAIL], [FAIL, FAIL], [PASS, PASS]])
    text = str(caught.value)
    assert "only 1 of 2 groups" in text
    assert "signal-free: 3 of 4 (75%)" in text
    assert "max_refill_rounds" in text


def test_too_many_voids_stop_the_step_with_kinds_and_the_last_cause() -> None:
    groups = step(wanted=2, size=2, rounds=3, void_share=0.25)
    groups.hand_out()
    broken = SessionReport(outcome=VOID, reward=NAN, voids=("sandbox", "sandbox"), fault_cause="no space on device")
    with pytest.raises(StepStopped) as caught:
        groups.add(GroupReport(key="g0", uid="t", sessions=(session(PASS), broken)))
    assert "2 of 3 episodes (67%) are void" in str(caught.value)
    assert "sandbox 2" in str(caught.value)
    assert "no space on device" in str(caught.value)


def test_one_early_void_does_not_stop_a_large_step() -> None:
    groups = step(wanted=8, size=4, rounds=1, void_share=0.25)
    groups.hand_out()
    assert groups.add(group(0, [VOID, VOID, PASS, FAIL])) is Verdict.VOID


def test_voids_are_judged_from_half_of_the_episodes_on_and_above_their_limit_alone() -> None:
    half_void = group(0, [VOID, PASS])
    assert half_void.attempts == 2
    judged = step(wanted=2, size=2, void_share=0.49)
    judged.hand_out()
    with pytest.raises(StepStopped, match="1 of 2 episodes"):
        judged.add(half_void)
    at_the_limit = step(wanted=2, size=2, void_share=0.5)
    at_the_limit.hand_out()
    assert at_the_limit.add(half_void) is Verdict.VOID
    too_early = step(wanted=3, size=2, void_share=0.0)
    too_early.hand_out()
    assert too_early.add(half_void) is Verdict.VOID


def test_retried_voids_count_as_attempts_though_the_episode_became_valid() -> None:
    report = GroupReport(key="g", uid="t", sessions=(session(PASS, voids=2), session(FAIL)))
    assert (report.attempts, report.passes) == (4, 1)
    groups = step(wanted=1, size=2)
    groups.hand_out()
    assert groups.add(report) is Verdict.KEPT
    assert groups.voids["sandbox"] == 2
    assert groups.attempts == 4


def test_a_group_whose_episodes_began_in_different_states_stops_the_step() -> None:
    def report(*starts: str, last: Outcome = FAIL) -> GroupReport:
        outcomes = [PASS] * (len(starts) - 1) + [last]
        sessions = tuple(
            SessionReport(outcome=o, reward=float(o is PASS), start=s) for o, s in zip(outcomes, starts, strict=True)
        )
        return GroupReport(key="g0", uid="shop.py:test_a", sessions=sessions)

    groups = step(size=2)
    groups.hand_out()
    assert groups.add(report("1", "1")) is Verdict.KEPT
    assert groups.add(report("1", "2", last=VOID)) is Verdict.VOID
    with pytest.raises(StepStopped, match=r"episodes of shop\.py:test_a began in different states"):
        groups.add(report("1", "2"))
