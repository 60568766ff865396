"""What the benchmark says of given times."""

from __future__ import annotations

from typing import Any

import pytest

from stateward.errors import UserError
from stateward.training.bench import loop_table, phase_table, step_table
from stateward.training.bench_loops import FixedLength, conversation, loop_of, passes
from stateward.training.engines import EngineClient


def line(step: int, sample: float, save: float | None = None) -> dict[str, Any]:
    seconds = {"sample": sample, "update": 1.0, "step": sample + 1.0 + (save or 0.0)}
    inside = dict.fromkeys(("open", "sample", "tools", "user", "grade", "total"), 0.5)
    return {"step": step, "seconds": seconds | ({} if save is None else {"save": save}), "episode_seconds": inside}


def test_phases_have_their_median_range_and_share() -> None:
    rows = phase_table([line(1, 2.0), line(2, 4.0, save=2.0), line(3, 3.0)])
    assert "| sample | 3.00 | 2.00 | 4.00 | 64% |" in rows
    assert "| save | 2.00 | 2.00 | 2.00 | 14% |" in rows
    assert rows[-1].endswith("grade 0.500, total 0.500")
    assert not any("log_prob" in row for row in rows)
    with pytest.raises(UserError):
        phase_table([])


def test_the_overhead_is_of_rounds_that_belong_together() -> None:
    def cost(clock: float) -> dict[str, float]:
        return {"clock": clock, "cpu": clock / 2, "loop": clock / 4, "worlds": clock / 8}

    rounds = [
        {"ours": cost(own), "verl": cost(plain), "phases": {"open": 0.1}}
        for own, plain in ((2.2, 2.0), (11.0, 10.0), (3.0, 2.0))
    ]
    rows = loop_table({"tokens": 3, "rounds": rounds, "prompt_tokens": {"ours": 10, "verl": 10}}, 1, 2)
    assert rows[0] == "3 rounds of 1 groups of 2 episodes of 3 sampled tokens"
    assert "overhead: clock +10.0%, CPU +10.0% (medians over the rounds)" in rows
    ours = "engine and Ray 187.5, the loop's process 375.0, worlds and grading 187.5"
    assert any(row.startswith("CPU an episode, median ms, Verl's: ") and row.endswith(f"ours: {ours}") for row in rows)
    assert "| ours, with world and grading | 10 | 3.00 | 2.20 | 11.00 | 1.50 | 1.10 | 5.50 |" in rows


class Words:
    """A tokenizer of one token a word, and three around a message."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [0] * (3 + len(messages[0]["content"].split()))}


def test_verls_prompt_is_as_long_as_ours() -> None:
    messages, length = conversation(Words(), 40)
    assert length == 40
    assert len(messages[0]["content"].split()) == 37


async def test_every_turn_has_the_same_length_whoever_asks() -> None:
    asked: list[dict[str, Any]] = []

    class Handle:
        class generate:
            @staticmethod
            async def remote(**call: Any) -> None:
                asked.append(call["sampling_params"])

    client = FixedLength(EngineClient({"a": Handle()}))
    client.tokens = 7
    await client.generate(request_id="r", prompt_ids=[1], sampling_params={"max_tokens": 99, "top_k": 3}, priority=0)
    assert asked == [{"max_tokens": 7, "min_tokens": 7, "ignore_eos": True, "top_k": 3}]


def test_a_steps_overhead_is_of_neighbours() -> None:
    lines = [
        {**line(i, seconds, save=0.5), "loop": loop, "episodes_run": 96}
        for i, (loop, seconds) in enumerate((("verl", 1.0), ("ours", 1.5), ("ours", 2.0), ("verl", 1.0)))
    ]
    for entry in lines:
        entry["seconds"] |= dict.fromkeys(("log_prob", "advantage", "synchronise"), 0.0)
    rows = step_table(lines)
    assert rows[0] == "2 steps of each loop, 96 episodes run a step"
    assert "| sample | 1.00 | 1.00 | 1.00 | 1.75 | 1.50 | 2.00 | +0.75 |" in rows
    assert "| step | 2.50 | 2.50 | 2.50 | 3.25 | 3.00 | 3.50 | +0.75 |" in rows
    assert "overhead of step: +30.0% (+20.0% to +40.0%)" in rows


def test_both_loops_take_turns_and_a_step_replaces_what_was_asked() -> None:
    order = [loop_of(step) for step in range(1, 9)]
    assert [order.count(name) for name in ("ours", "verl")] == [4, 4]
    assert all(set(pair) == {"ours", "verl"} for pair in zip(order[::2], order[1::2], strict=True))
    groups = [[passes(f"s000003g{number:05d}", session, 2) for session in range(4)] for number in range(4)]
    assert [len(set(group)) for group in groups] == [1, 1, 2, 2]
