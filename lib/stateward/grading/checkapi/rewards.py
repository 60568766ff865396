"""Small formulas that test code may combine rewards with (names of ``thinkingbox.common.graders``)."""

from __future__ import annotations

from typing import Any


def average_reward(rewards: dict[str, float], weights: dict[str, float] | None = None) -> float:
    """Mean of `rewards`, weighted by the `weights` of the same names; 0.0 of nothing."""
    if weights is None or not weights:
        weights = dict.fromkeys(rewards, 1.0)
    shared = rewards.keys() & weights.keys()
    total = sum(weights[name] for name in shared)
    return sum(rewards[name] * weights[name] for name in shared) / total if shared else 0.0


def match_score(result: Any, expected: Any, partial: bool = False, is_critical: bool = False) -> float:
    """1.0 when equal, else 0.0; with `partial`, the share of the entries of a mapping that agree.

    Raises:
        ValueError: values of two types, or `partial` of something that is not a mapping.
        AssertionError: with `is_critical`, a score below 1.
    """
    if type(result) is not type(expected):
        raise ValueError(f"cannot compare {type(result).__name__} with {type(expected).__name__}")
    if partial and not isinstance(expected, dict):
        raise ValueError("partial matching is for mappings")
    if partial:
        score = sum(bool(key in result and result[key] == value) for key, value in expected.items()) / len(expected)
    else:
        score = float(result == expected)
    if is_critical and score < 1:
        raise AssertionError(f"expected {expected!r}, found {result!r}")
    return score
