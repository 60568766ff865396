from __future__ import annotations

from stateward.store.starts import mixed_starts


def test_tasks_with_several_initial_states_are_named_once() -> None:
    trials = [("a", "1"), ("b", "1"), ("a", "1"), ("b", "2"), ("c", ""), ("c", "3"), ("b", "3")]
    assert mixed_starts(trials) == ["b"]
    assert mixed_starts([]) == []
