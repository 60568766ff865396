"""Several training seeds of one method: the spread between them as a further level of the interval.

With S seeds evaluated on the same T tasks, the mean over both varies with the tasks and with the seeds. Resampling
three seeds says little (there are ten distinct draws), so this level is added by its variance:

    Var = Var_tasks + s² / S,

where Var_tasks is the bootstrap variance over tasks of the seeds' mean, and s² the sample variance between the seeds'
means over all tasks. Both contain the noise of the trials, so the sum errs on the wide side. The interval is
mean ± t · √Var with Satterthwaite's degrees of freedom: with two seeds that disagree, it is honestly wide.
"""

from __future__ import annotations

import math

from stateward.evaluation.intervals import LEVEL, bootstrap_means
from stateward.evaluation.metrics import Figure, Floats


def seed_level(values: Floats, *, resamples: int, seed: int) -> list[tuple[Figure, float]]:
    """Figure and two-sided p-value (of a mean of 0) for each of M metrics.

    Args:
        values: [S, T, M] per seed and task; differences to a baseline, or plain values. S ≥ 2.
    """
    from scipy.special import stdtr, stdtrit

    seeds, tasks, metrics = values.shape
    if seeds < 2:
        raise ValueError("the spread between seeds needs at least two")
    over_seeds = values.mean(axis=0)
    of_tasks = bootstrap_means(over_seeds, resamples, seed).var(axis=0) * (tasks / max(tasks - 1, 1))
    of_seeds = values.mean(axis=1).var(axis=0, ddof=1) / seeds
    out = []
    for j in range(metrics):
        mean, a, b = float(over_seeds[:, j].mean()), float(of_tasks[j]), float(of_seeds[j])
        if math.isnan(mean) or tasks < 2:
            reason = f"undefined for some task of {seeds} seeds" if math.isnan(mean) else "one task only"
            out.append((Figure(value=mean, over=tasks, reason=reason if math.isnan(mean) else ""), math.nan))
            continue
        spread = math.sqrt(a + b)
        if spread == 0:
            out.append((Figure(value=mean, over=tasks), math.nan))
            continue
        degrees = (a + b) ** 2 / (a * a / (tasks - 1) + b * b / (seeds - 1))
        reach = -float(stdtrit(degrees, (1 - LEVEL) / 2)) * spread
        p = 2 * float(stdtr(degrees, -abs(mean) / spread))
        out.append((Figure(value=mean, low=mean - reach, high=mean + reach, over=tasks), p))
    return out
