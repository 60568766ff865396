"""Values that JSON does not have, and any bytes: they void their trial with a cause, and a shard goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.episode import store_record
from stateward.errors import SystemFault
from stateward.grading.verdict import read_questions, read_verdict
from stateward.outcome import EpisodeRecord, Outcome, Trial, fingerprint
from stateward.policy.samplers.chat import read_answer
from stateward.sandbox import state_diff
from stateward.sandbox.reserved import parse_init, parse_state
from stateward.store import GroupCommit, Journal, read_records, seal
from stateward.store.journal import encode_line

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ODD_NUMBERS = st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "9" * 400, "9" * 5000, "-0", "1E400", "0.1e-999"]
)
SCALARS = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
).map(json.dumps)
#: JSON text with numbers in it that Python reads and JSON does not have.
TEXTS = st.recursive(
    SCALARS | ODD_NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")
        | st.dictionaries(st.text(max_size=4).map(json.dumps), inner, max_size=3).map(
            lambda parts: "{" + ",".join(f"{key}:{value}" for key, value in parts.items()) + "}"
        )
    ),
    max_leaves=8,
)
DEEP = st.integers(1, 3_000).flatmap(lambda n: st.sampled_from(["[" * n + "]" * n, '{"a":' * n + "1" + "}" * n]))
ANYTHING = TEXTS | st.text(max_size=40) | DEEP | TEXTS.map(lambda text: f'{{"status": "ok", "a": {text}}}')


def record(**values: Any) -> EpisodeRecord:
    trial = Trial(uid="a.py:test_a", index=0, policy="p", settings="s")
    return EpisodeRecord(**{"trial": trial, "outcome": Outcome.PASS, "reward": 1.0, "started": 1.0, **values})


@UNHURRIED
@given(ANYTHING)
def test_a_state_is_a_fault_or_can_be_stored(text: str) -> None:
    try:
        state = parse_state("shop", text, False)
    except SystemFault:
        return
    encode_line(record(final_state={"shop": state}, state_diff=state_diff({}, {"shop": state})).to_json())
    fingerprint(state)


@UNHURRIED
@given(ANYTHING)
def test_an_init_result_is_a_fault_or_can_be_stored(text: str) -> None:
    try:
        found = parse_init("shop", text)
    except SystemFault:
        return
    encode_line({"init": found})


_VERDICTS = st.fixed_dictionaries(
    {"outcome": st.sampled_from(['"pass"', '"fail"', '"void"', '"x"', "1"]), "reward": SCALARS | ODD_NUMBERS},
    optional=dict.fromkeys(("failure", "kind", "cause", "prints", "metadata", "judge_answers"), TEXTS),
).map(lambda parts: "{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}")


@UNHURRIED
@given(st.binary(max_size=60) | (ANYTHING | _VERDICTS).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_verdict_is_valid_or_refused(body: bytes) -> None:
    try:
        verdict = read_verdict(body)
    except ValueError:
        return
    outcome, reward = verdict["outcome"], verdict["reward"]
    assert math.isnan(reward) if outcome is Outcome.VOID else 0.0 <= reward <= 1.0
    assert (reward == 1.0) == (outcome is Outcome.PASS)
    encode_line(record(failure=verdict.get("failure", {}), grading={"metadata": verdict.get("metadata")}).to_json())


@pytest.mark.parametrize("reward", ["7.0", "-1e308", '"x"', "NaN", "1e999", "true", "null", "[]", "1.0000001"])
@pytest.mark.parametrize("outcome", ["pass", "fail"])
def test_a_reward_is_finite_and_from_0_to_1(outcome: str, reward: str) -> None:
    with pytest.raises(ValueError):
        read_verdict(f'{{"outcome": "{outcome}", "reward": {reward}}}'.encode())


@UNHURRIED
@given(st.binary(max_size=60) | ANYTHING.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_questions_are_conversations_or_refused(body: bytes) -> None:
    try:
        conversations = read_questions(body)
    except ValueError:
        return
    assert all(set(message) == {"role", "content"} for messages in conversations for message in messages)


@pytest.mark.parametrize("tokens", ["1e999", "NaN", "-5", "9" * 400, "99999999999999999999"])
def test_an_endpoint_counts_tokens(tokens: str) -> None:
    body = json.loads(f'{{"choices": [{{"message": {{"content": "a"}}}}], "usage": {{"prompt_tokens": {tokens}}}}}')
    with pytest.raises(SystemFault, match="no chat completion"):
        read_answer(body, "judge")


async def test_what_slips_through_voids_its_trial_and_the_shard_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "0000-00.jsonl"
    deep: Any = 1
    for _ in range(2_000):
        deep = [deep]
    bad = [{"a": math.inf}, {"a": math.nan}, {"a": {1, 2}}, {"a": deep}, {"a": 10**5000}]
    with Journal(journal) as opened:
        commit = GroupCommit(opened)

        async def write(found: EpisodeRecord) -> None:
            await commit.append(found.to_json())

        for index, state in enumerate(bad):
            trial = Trial(uid="a.py:test_a", index=index, policy="p", settings="s")
            stored = await store_record(record(trial=trial, final_state=state), write)
            assert (stored.outcome, stored.fault_kind) == (Outcome.VOID, "bug")
            assert "the record cannot be stored" in stored.fault_cause
        await store_record(record(trial=Trial(uid="a.py:test_b", index=0, policy="p", settings="s")), write)
    seal(journal, tmp_path / "0000-00.h5")
    assert [r.outcome.value for r in read_records(tmp_path)] == ["void"] * len(bad) + ["pass"]
