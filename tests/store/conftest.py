from __future__ import annotations

from typing import Any

import pytest

from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage


def record(uid: str = "shop.py:test_buy", index: int = 0, outcome: str = "pass", **more: Any) -> EpisodeRecord:
    reward = {"pass": 1.0, "fail": 0.0, "void": float("nan")}[outcome]
    return EpisodeRecord(
        trial=Trial(uid=uid, index=index, policy=more.pop("policy", "p0"), settings=more.pop("settings", "s0")),
        outcome=Outcome(outcome),
        reward=reward,
        domain=more.pop("domain", "shop"),
        fault_kind="sandbox" if outcome == "void" else "",
        finish=more.pop("finish", "done"),
        turns=more.pop("turns", 3),
        usage=more.pop("usage", {"policy": Usage(requests=3, prompt=900, cached=600, completion=70, reasoning=20)}),
        seconds=more.pop("seconds", {"total": 2.5, "sample": 2.0}),
        messages=more.pop("messages", [{"role": "user", "content": "Grüße, 你好 \u2028 \x00"}]),
        **more,
    )


@pytest.fixture
def make_record() -> Any:
    return record
