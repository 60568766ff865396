from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import betabinom, norm

from stateward.evaluation.counts import Counts
from stateward.evaluation.intervals import bootstrap_means, difference_intervals, intervals, sign_flip_p
from stateward.evaluation.metrics import Table, task_table
from stateward.evaluation.seeds import seed_level


def by_passes(n: int) -> Table:
    """Row c: every metric of a task with c of n passes."""
    c = np.arange(n + 1)
    counts = Counts(
        uids=tuple(map(str, c)),
        domains=("",) * (n + 1),
        passes=c,
        valid=np.full(n + 1, n),
        void=c * 0,
        late=c * 0,
        trials=n,
    )
    return task_table(counts, sorted({1, 2, 5, n}))


def share_covered(tasks: int, n: int, a: float, b: float, campaigns: int, resamples: int) -> dict[str, float]:
    """Simulated campaigns whose tasks have Beta(a, b) success rates: how often the interval holds the truth.

    The truth of a metric is its mean over the population of tasks and trials: of the unbiased ones this is the mean of
    p^k or 1 − (1 − p)^k; of the plug-in it is the plug-in's own expectation, which lies above that of p^k.
    """
    table = by_passes(n)
    truth = betabinom.pmf(np.arange(n + 1), n, a, b) @ table.values
    rng = np.random.default_rng(tasks)
    hits = np.zeros(len(table.names))
    for campaign in range(campaigns):
        values = table.values[rng.binomial(n, rng.beta(a, b, tasks))]
        found = intervals(values, bootstrap_means(values, resamples, campaign), lowest=0, highest=1)
        hits += [i.low <= t <= i.high for i, t in zip(found, truth, strict=True)]
    return dict(zip(table.names, (hits / campaigns).tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "n", "a", "b"), [(507, 20, 0.45, 0.4), (100, 20, 0.45, 0.4), (38, 8, 0.6, 0.6)])
def test_the_intervals_cover_the_truth(tasks: int, n: int, a: float, b: float) -> None:
    covered = share_covered(tasks, n, a, b, campaigns=2_000, resamples=1_000)
    assert len(covered) >= 12
    assert all(0.93 <= share <= 0.97 for share in covered.values()), covered


def paired(tasks: int) -> tuple[dict[str, float], float]:
    """Simulated pairs of runs on the same tasks: how often the interval of each metric's difference holds the truth,
    and how often the test rejects where there is no difference."""
    n, campaigns, lift = 20, 2_000, 0.3
    table = by_passes(n)
    rng = np.random.default_rng(4)
    # The truth of the difference by a large sample of the same population.
    p = rng.beta(0.6, 0.6, 2_000_000)
    q = p + lift * p * (1 - p)
    c = np.arange(n + 1)
    pmf = [np.array([math.comb(n, i) * (r**i * (1 - r) ** (n - i)).mean() for i in c]) for r in (p, q)]
    truth = (pmf[1] - pmf[0]) @ table.values
    hits = np.zeros(len(table.names))
    rejected = np.zeros(len(table.names))
    for campaign in range(campaigns):
        p = rng.beta(0.6, 0.6, tasks)
        base, same = (table.values[rng.binomial(n, p)] for _ in range(2))
        delta = table.values[rng.binomial(n, p + lift * p * (1 - p))] - base
        found = difference_intervals(delta, bootstrap_means(delta, 600, campaign))
        hits += [i.low <= t <= i.high for i, t in zip(found, truth, strict=True)]
        rejected += sign_flip_p(same - base, 600, campaign) < 0.05
    return dict(zip(table.names, (hits / campaigns).tolist(), strict=True)), float(rejected.max() / campaigns)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [100, 507])
def test_intervals_of_a_paired_difference_cover_the_truth_and_the_test_keeps_its_level(tasks: int) -> None:
    covered, rejected = paired(tasks)
    assert all(0.93 <= share <= 0.97 for share in covered.values()), covered
    assert rejected < 0.065


def test_resampling_trials_as_well_would_break_k_of_k() -> None:
    """Why trials are not drawn with replacement inside a drawn task: the interval of k/k would miss its own figure."""
    n, tasks = 20, 400
    rng = np.random.default_rng(0)
    passes = rng.binomial(n, rng.beta(6, 1, tasks))
    observed = (passes == n).mean()
    with_trials = [(rng.binomial(n, passes[rng.integers(0, tasks, tasks)] / n) == n).mean() for _ in range(500)]
    assert np.quantile(with_trials, 0.025) > observed
    values = (passes == n).astype(float)[:, None]
    (right,) = intervals(values, bootstrap_means(values, 500, 0), lowest=0, highest=1)
    assert right.low < observed < right.high


def test_bootstrap_is_the_exact_distribution_over_all_draws() -> None:
    """Three tasks, two of them alike: all 27 equally likely draws can be written down."""
    values = np.array([[0.0], [0.0], [1.0]])
    exact = Counter(round(sum(values[i, 0] for i in draw) / 3, 9) for draw in itertools.product(range(3), repeat=3))
    found = Counter(np.round(bootstrap_means(values, 54_000, 1)[:, 0], 9).tolist())
    for mean, ways in exact.items():
        assert found[mean] / 54_000 == pytest.approx(ways / 27, abs=0.01)
    assert set(found) == set(exact)


def test_same_arguments_same_result_and_nan_stays() -> None:
    values = np.array([[0.1, np.nan], [0.7, 1.0], [0.2, 0.0]])
    first, second = (bootstrap_means(values, 100, 7) for _ in range(2))
    assert np.array_equal(first, second, equal_nan=True)
    assert np.isnan(first[:, 1]).all()
    assert not np.isnan(first[:, 0]).any()
    assert math.isnan(intervals(values, first, lowest=0, highest=1)[1].low)


def test_no_success_in_any_task_still_has_an_upper_end() -> None:
    values = np.zeros((40, 1))
    (found,) = intervals(values, bootstrap_means(values, 50, 0), lowest=0, highest=1)
    assert found.low == 0
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 40))
    ones = np.ones((40, 1))
    (found,) = intervals(ones, bootstrap_means(ones, 50, 0), lowest=0, highest=1)
    assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / 40)), 1)
    assert math.isnan(intervals(values[:1], values[:1], lowest=0, highest=1)[0].low), "one task knows no spread"


@pytest.mark.parametrize(("tasks", "t"), [(2, 12.7062047), (5, 2.7764451), (30, 2.0452296), (500, 1.9647293)])
def test_intervals_over_few_tasks_are_as_wide_as_students(tasks: int, t: float) -> None:
    """Of means that are normal with the bootstrap's spread s/√T, the ends lie t · s/√(T−1) from the centre (t: 97.5 %
    quantile of Student's distribution with T − 1 degrees of freedom, from a printed table)."""
    values = np.linspace(-1.0, 1.0, tasks)[:, None]
    spread = values.std() / math.sqrt(tasks)
    means = norm.ppf((np.arange(2_000_000) + 0.5) / 2_000_000)[:, None] * spread
    (found,) = intervals(values, means, lowest=-20, highest=20)
    reach = t * spread * math.sqrt(tasks / (tasks - 1))
    # With two tasks the ends are the 10⁻⁷² quantiles, which no sample has: there the widest mean must do.
    reach = min(reach, float(means.max()))
    assert (found.low, found.high) == (pytest.approx(-reach, rel=0.01), pytest.approx(reach, rel=0.01))


def test_sign_flip_against_all_flips() -> None:
    d = np.array([[0.3], [-0.1], [0.4], [0.2], [0.05]])
    sums = [
        abs(sum(s * x for s, x in zip(signs, d[:, 0], strict=True))) for signs in itertools.product((1, -1), repeat=5)
    ]
    exact = np.mean([s >= abs(d.sum()) - 1e-12 for s in sums])
    assert sign_flip_p(d, 40_000, 3)[0] == pytest.approx(exact, abs=0.01)
    assert sign_flip_p(np.zeros((5, 1)), 100, 3)[0] == 1
    assert np.isnan(sign_flip_p(np.full((5, 1), np.nan), 100, 3)[0])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_level_of_seeds_covers_the_truth(seeds: int) -> None:
    """Tasks and seeds both vary: intervals over tasks alone miss the truth, those with the seeds hold it."""
    tasks, campaigns, truth = 60, 2_000, 0.1
    rng = np.random.default_rng(seeds)
    hits = narrow = 0
    for campaign in range(campaigns):
        task, seed = rng.normal(0, 0.25, tasks), rng.normal(0, 0.06, seeds)
        values = truth + task[None, :, None] + seed[:, None, None] + rng.normal(0, 0.15, (seeds, tasks, 1))
        ((figure, _),) = seed_level(values, resamples=200, seed=campaign)
        hits += figure.low <= truth <= figure.high
        one = values.mean(axis=0)
        (tasks_only,) = intervals(one, bootstrap_means(one, 200, campaign), lowest=-1, highest=1)
        narrow += tasks_only.low <= truth <= tasks_only.high
    assert 0.93 <= hits / campaigns <= 0.985
    assert narrow / campaigns < 0.9


def test_seed_level_edges() -> None:
    with pytest.raises(ValueError, match="at least two"):
        seed_level(np.zeros((1, 5, 1)), resamples=10, seed=0)
    ((figure, p),) = seed_level(np.full((2, 5, 1), 0.5), resamples=10, seed=0)
    assert (figure.value, math.isnan(p)) == (0.5, True)
    ((figure, p),) = seed_level(np.full((2, 5, 1), np.nan), resamples=10, seed=0)
    assert figure.reason
    assert math.isnan(p)
