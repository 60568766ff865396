"""A shard whose episodes are void one after the other stops, and says of what."""

from __future__ import annotations

import pytest

from stateward.campaign.void_limit import VoidLimit
from stateward.errors import SystemFault
from stateward.outcome import EpisodeRecord, Outcome, Trial

TRIAL = Trial(uid="a.py:test", index=0, policy="p", settings="s")


def record(kind: str = "") -> EpisodeRecord:
    outcome = Outcome.VOID if kind else Outcome.PASS
    return EpisodeRecord(trial=TRIAL, outcome=outcome, reward=1.0, fault_kind=kind, fault_cause=f"{kind} is down")


def test_a_dead_endpoint_stops_the_shard_with_its_cause() -> None:
    limit = VoidLimit("probe.max_void_share", 0.5)
    limit.count(record("grader"))
    for _ in range(18):
        limit.count(record("user"))
    with pytest.raises(SystemFault) as caught:
        limit.count(record("user"))
    assert caught.value.kind == "user"
    assert "20 of 20 episodes are void, more than probe.max_void_share=0.5" in str(caught.value)
    assert "by kind: 19 user, 1 grader" in str(caught.value)
    assert "the last cause: user is down" in str(caught.value)


def test_a_share_below_the_limit_goes_on() -> None:
    limit = VoidLimit("probe.max_void_share", 0.5)
    for _ in range(100):
        limit.count(record())
        limit.count(record("sandbox"))


def test_the_limit_may_be_lifted() -> None:
    limit = VoidLimit("evaluate.max_void_share", 1.0)
    for _ in range(100):
        limit.count(record("sandbox"))
