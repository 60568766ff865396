"""Base against tuned on the same tasks: differences with intervals and tests, and which tasks moved."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stateward.evaluation.counts import Counts
from stateward.evaluation.intervals import bootstrap_means, difference_intervals, sign_flip_p
from stateward.evaluation.metrics import Figure, headline_ks, task_table


@dataclass(frozen=True, kw_only=True)
class Change:
    """One metric's change: `difference` is tuned − base, over the same tasks; `p` of the sign-flip test."""

    base: float
    tuned: float
    difference: Figure
    p: float

    def verdict(self) -> str:
        """What the change supports, in one word: up, down, or unclear."""
        if math.isnan(self.p) or math.isnan(self.difference.low):
            return "undefined"
        if self.p < 0.05 and (self.difference.low > 0 or self.difference.high < 0):
            return "up" if self.difference.value > 0 else "down"
        return "unclear"


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """Where tasks went. States by passes c of n: never (c = 0), sometimes (0 < c < n), always (c = n).

    `table` [3, 3] counts tasks by state in base (row) and tuned (column). The lists name tasks.
    """

    table: list[list[int]]
    became_reliable: list[str]
    lost_reliability: list[str]
    first_success: list[str]
    lost_last_success: list[str]


STATES = ("never", "sometimes", "always")


def changes(base: Counts, tuned: Counts, *, resamples: int, seed: int) -> dict[str, Change]:
    """Metric → change. Both runs must have the same tasks in the same order and the same number of trials; metrics
    that are undefined for a task of either run come out undefined."""
    if base.uids != tuned.uids or base.trials != tuned.trials:
        raise ValueError("paired comparison needs the same tasks in the same order, and equal trials")
    ks = headline_ks(base.trials)
    a, b = task_table(base, ks), task_table(tuned, ks)
    delta = b.values - a.values
    means = bootstrap_means(delta, resamples, seed)
    found = difference_intervals(delta, means)
    p = sign_flip_p(delta, resamples, seed + 1)
    out = {}
    for j, name in enumerate(a.names):
        value = float(delta[:, j].mean())
        undefined = int(np.isnan(delta[:, j]).sum())
        reason = f"undefined for {undefined} of {len(delta)} tasks" if undefined else ""
        figure = Figure(value=value, low=found[j].low, high=found[j].high, over=len(delta), reason=reason)
        out[name] = Change(
            base=float(a.values[:, j].mean()), tuned=float(b.values[:, j].mean()), difference=figure, p=float(p[j])
        )
    return out


def transitions(base: Counts, tuned: Counts) -> Transitions:
    """Which tasks became reliable, which lost their last success."""
    before, after = _states(base), _states(tuned)
    table = np.zeros((3, 3), np.int64)
    np.add.at(table, (before, after), 1)

    def named(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[str]:
        return [base.uids[i] for i in np.flatnonzero(mask)]

    return Transitions(
        table=table.tolist(),
        became_reliable=named((before < 2) & (after == 2)),
        lost_reliability=named((before == 2) & (after < 2)),
        first_success=named((before == 0) & (after > 0)),
        lost_last_success=named((before > 0) & (after == 0)),
    )


def _states(counts: Counts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    always = (counts.passes == counts.valid) & (counts.valid > 0)
    return np.where(counts.passes == 0, 0, np.where(always, 2, 1)).astype(np.int64)
