"""Success metrics, task by task, and their means.

With c passes in n valid trials of a task:

* ``pass@k`` = 1 − C(n−c, k) / C(n, k): unbiased for the chance that at least one of k trials passes (Chen et al. 2021,
  *Evaluating Large Language Models Trained on Code*, eq. 1).
* ``pass^k`` = C(c, k) / C(n, k): unbiased for the chance that all of k trials pass (Yao et al. 2024, *τ-bench*).
* ``pass^k plug-in`` = (c/n)^k: biased upwards, as E[(c/n)^k] ≥ p^k, but it tells hard tasks apart; in use too.
* ``k/k``: observed, c = n = k for the planned number of trials k. Equal to pass^k at k = n.

All are undefined (NaN, with a reason), not 0 and not 1, where n < k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stateward.evaluation.counts import Counts, Ints

Floats = npt.NDArray[np.float64]


def pass_at(passes: Ints, valid: Ints, ks: Sequence[int]) -> Floats:
    """[T, len(ks)] unbiased pass@k; NaN where n < k."""
    return 1.0 - _all_of(valid - passes, valid, ks)


def pass_hat(passes: Ints, valid: Ints, ks: Sequence[int]) -> Floats:
    """[T, len(ks)] unbiased pass^k; NaN where n < k."""
    return _all_of(passes, valid, ks)


def pass_hat_plug_in(passes: Ints, valid: Ints, ks: Sequence[int]) -> Floats:
    """[T, len(ks)] plug-in (c/n)^k. Needs no k trials, but is left undefined where n < k all the same: extrapolating
    reliability from fewer trials than it speaks of is what this suite exists to avoid."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out = (passes / valid)[:, None] ** np.asarray(ks)
    return np.where(np.asarray(ks) <= valid[:, None], out, np.nan)


def _all_of(hits: Ints, valid: Ints, ks: Sequence[int]) -> Floats:
    """C(hits, k) / C(valid, k) as the product of (hits − i) / (valid − i) for i < k."""
    out = np.full((len(hits), len(ks)), np.nan)
    if not ks:
        return out
    steps = np.arange(max(ks))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.maximum(hits[:, None] - steps, 0) / (valid[:, None] - steps)
    product = np.cumprod(ratios, axis=1)
    for j, k in enumerate(ks):
        out[:, j] = np.where(valid >= k, product[:, k - 1], np.nan)
    return out


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of a report, with its 95 % interval where one was computed.

    `value` is NaN if and only if `reason` says why it cannot be computed. `over` is the number of tasks behind it.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    over: int = 0
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """NaN becomes null."""
        out: dict[str, Any] = {"value": _null(self.value), "low": _null(self.low), "high": _null(self.high)}
        return {**out, "over": self.over, **({"reason": self.reason} if self.reason else {})}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Per-task values of several metrics: `values` [T, M] under `names` [M]; NaN where undefined."""

    names: tuple[str, ...]
    values: Floats

    def column(self, name: str) -> Floats:
        return self.values[:, self.names.index(name)]


def headline_ks(trials: int) -> list[int]:
    """The k that tables show: 1, 2, 5, 10, … up to the number of trials, and that number."""
    return sorted({k for k in (1, 2, 5, 10, 20, 50, 100) if k <= trials} | {trials})


def task_table(counts: Counts, ks: Sequence[int]) -> Table:
    """Every success metric for every task. Names: ``pass@1``, ``k/k``, ``pass@K``, ``pass^K``, ``pass^K plug-in``."""
    c, n, k = counts.passes, counts.valid, counts.trials
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {"pass@1": c / n}
    columns["k/k"] = np.where(n >= k, (c == n).astype(float), np.nan)
    columns["any"] = np.where(n >= k, (c > 0).astype(float), np.nan)
    rest = [q for q in ks if q > 1]
    for name, function in (("pass@{}", pass_at), ("pass^{}", pass_hat), ("pass^{} plug-in", pass_hat_plug_in)):
        values = function(c, n, rest)
        columns |= {name.format(q): values[:, j] for j, q in enumerate(rest)}
    return Table(names=tuple(columns), values=np.stack(list(columns.values()), axis=1))


def describe_metric(name: str, trials: int) -> str:
    """What a metric means, in words."""
    kind, _, rest = name.replace("^", "@").partition("@")
    if name == "k/k":
        return f"share of tasks with all {trials} of {trials} trials passed"
    if name == "any":
        return f"share of tasks with at least one of {trials} trials passed"
    if name == "pass@1" or not kind:
        return "mean over tasks of the share of trials passed"
    if "plug-in" in name:
        return f"mean over tasks of (c/n)^{rest.split()[0]}"
    if "^" in name:
        return f"chance that all of {rest} trials pass, unbiased"
    return f"chance that at least one of {rest} trials passes, unbiased"


def mean_figure(values: Floats, name: str, trials: int) -> Figure:
    """The mean over tasks of one column; undefined if it is for any task, with the reason."""
    undefined = int(np.isnan(values).sum())
    if not len(values):
        return Figure(value=math.nan, reason="no tasks")
    if undefined:
        need = "a valid trial" if name == "pass@1" else f"the {_needed(name, trials)} valid trials it takes"
        return Figure(value=math.nan, over=len(values), reason=f"{undefined} of {len(values)} tasks lack {need}")
    return Figure(value=float(values.mean()), over=len(values))


def _needed(name: str, trials: int) -> int:
    if name in ("k/k", "any"):
        return trials
    return int(name.replace("^", "@").split("@")[1].split()[0])


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value
