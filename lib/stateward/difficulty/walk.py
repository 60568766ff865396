"""Exact arithmetic over the counts of one task's trials, seen as a walk on the grid (k passes, m valid trials).

Every table here has shape [n + 1, n + 1], is indexed [k, m], and means nothing where k > m. A *population* is a pair
(a, b): success rates of tasks are spread as Beta(a, b), so the next trial of a task at (k, m) passes with probability
(a + k) / (a + b + m).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Tasks' success rates under the published base policy: Beta with its mean (51 %) and its shares of tasks that always
#: (about 8 %) and never (about 8 %) succeed in 20 trials.
POPULATION = (0.713, 0.682)


def pass_chance(n: int, population: tuple[float, float]) -> Floats:
    """[k, m] probability that the next trial passes."""
    a, b = population
    k, m = np.arange(n + 1.0)[:, None], np.arange(n + 1.0)[None, :]
    return np.asarray(np.clip((a + k) / (a + b + m), 0.0, 1.0))


def constant_chance(n: int, rate: float) -> Floats:
    """[k, m] the same, for one task whose success rate is known."""
    return np.full((n + 1, n + 1), rate)


def ends(stop: Flags, chance: Floats) -> Floats:
    """[k, m] probability that a task's trials end at this node; they end where `stop` is first True, or at n."""
    n = stop.shape[0] - 1
    out = np.zeros((n + 1, n + 1))
    at = np.zeros(n + 1)
    at[0] = 1.0
    for m in range(n + 1):
        halt = stop[:, m] if m < n else np.ones(n + 1, bool)
        out[:, m] = np.where(halt, at, 0.0)
        going = np.where(halt, 0.0, at)
        up = going * chance[:, m]
        at = going - up
        at[1:] += up[:-1]
    return out


def kept_chance(kept: Flags, chance: Floats) -> Floats:
    """[k, m] probability that the task will be kept at n trials; `kept` [n + 1] says which final counts are."""
    n = len(kept) - 1
    out = np.zeros((n + 1, n + 1))
    out[:, n] = kept
    for m in range(n - 1, -1, -1):
        rise = chance[: m + 1, m]
        out[: m + 1, m] = rise * out[1 : m + 2, m + 1] + (1 - rise) * out[: m + 1, m + 1]
    return out


def mean_trials(ended: Floats) -> float:
    """Expected trials a task, of the table that `ends` gives."""
    return float((ended * np.arange(ended.shape[1])).sum())
