from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.evaluation.counts import Counts
from stateward.evaluation.metrics import (
    describe_metric,
    headline_ks,
    mean_figure,
    pass_at,
    pass_hat,
    pass_hat_plug_in,
    task_table,
)


def make(passes: list[int], valid: list[int], trials: int, void: list[int] | None = None) -> Counts:
    return Counts(
        uids=tuple(f"t{i}" for i in range(len(passes))),
        domains=("d",) * len(passes),
        passes=np.array(passes),
        valid=np.array(valid),
        void=np.array(void or [0] * len(passes)),
        late=np.zeros(len(passes), np.int64),
        trials=trials,
    )


@pytest.mark.parametrize("n", range(1, 8))
def test_against_every_subset_of_k_trials(n: int) -> None:
    """pass@k and pass^k are the shares of k-subsets with any, and with only, passes."""
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        one, all_ = (sum(f(s) for s in subsets) / len(subsets) for f in (any, all))
        args = (np.array([c]), np.array([n]), [k])
        assert pass_at(*args)[0, 0] == pytest.approx(one, abs=1e-12)
        assert pass_hat(*args)[0, 0] == pytest.approx(all_, abs=1e-12)
        assert pass_hat_plug_in(*args)[0, 0] == pytest.approx((c / n) ** k, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1), st.data())
def test_unbiased(n: int, p: float, data: st.DataObject) -> None:
    """Over Binomial(n, p), the estimators' means are p^k and 1 − (1 − p)^k exactly; the plug-in's is not below."""
    k = data.draw(st.integers(1, n))
    c = np.arange(n + 1)
    weights = np.array([math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in c])
    valid = np.full(n + 1, n)
    assert weights @ pass_hat(c, valid, [k])[:, 0] == pytest.approx(p**k, abs=1e-9)
    assert weights @ pass_at(c, valid, [k])[:, 0] == pytest.approx(1 - (1 - p) ** k, abs=1e-9)
    assert weights @ pass_hat_plug_in(c, valid, [k])[:, 0] >= p**k - 1e-9


def test_fewer_trials_than_k_are_undefined_with_a_reason() -> None:
    counts = make([3, 3], [3, 4], 4, void=[1, 0])
    table = task_table(counts, [1, 2, 4])
    assert math.isnan(table.column("k/k")[0]), "3 of 3 passed, but the 4th is void: not 4/4, and not a failure"
    for name in ("k/k", "any", "pass@4", "pass^4", "pass^4 plug-in"):
        figure = mean_figure(table.column(name), name, 4)
        assert math.isnan(figure.value)
        assert figure.reason == "1 of 2 tasks lack the 4 valid trials it takes"
        assert figure.to_json()["value"] is None
    assert mean_figure(table.column("pass^2"), "pass^2", 4).value == pytest.approx((1 + 0.5) / 2)
    none = task_table(make([0], [0], 4, void=[4]), [1])
    assert "lack a valid trial" in mean_figure(none.column("pass@1"), "pass@1", 4).reason
    assert mean_figure(np.array([]), "pass@1", 4).reason == "no tasks"


def test_void_as_failure_is_the_other_policy() -> None:
    counts = make([3, 0], [3, 0], 4, void=[1, 4]).void_as_failure()
    assert task_table(counts, [1]).column("pass@1").tolist() == [0.75, 0.0]
    assert task_table(counts, [1]).column("k/k").tolist() == [0.0, 0.0]


def test_headline_ks() -> None:
    assert headline_ks(20) == [1, 2, 5, 10, 20]
    assert headline_ks(8) == [1, 2, 5, 8]
    assert headline_ks(1) == [1]


def test_every_metric_is_described() -> None:
    for name in task_table(make([1], [20], 20), headline_ks(20)).names:
        assert describe_metric(name, 20)
    assert describe_metric("pass^5 plug-in", 20) == "mean over tasks of (c/n)^5"
    assert describe_metric("pass@5", 20).startswith("chance that at least one of 5")
