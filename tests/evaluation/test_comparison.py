from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateward.evaluation.comparison import changes, transitions
from stateward.evaluation.counts import Counts
from stateward.evaluation.report import ReportOptions, compute, terminal

PRICES = Path(__file__).parents[2] / "configs" / "prices.yaml"


def counts(passes: list[int], n: int) -> Counts:
    return Counts(
        uids=tuple(f"t{i}" for i in range(len(passes))),
        domains=("d",) * len(passes),
        passes=np.array(passes),
        valid=np.full(len(passes), n),
        void=np.zeros(len(passes), np.int64),
        late=np.zeros(len(passes), np.int64),
        trials=n,
    )


def test_transitions_name_every_task() -> None:
    moved = transitions(counts([0, 0, 0, 2, 2, 2, 4, 4, 4], 4), counts([0, 1, 4, 0, 3, 4, 0, 1, 4], 4))
    assert moved.table == [[1, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert moved.became_reliable == ["t2", "t5"]
    assert moved.lost_reliability == ["t6", "t7"]
    assert moved.first_success == ["t1", "t2"]
    assert moved.lost_last_success == ["t3", "t6"]


def test_a_clear_change_and_no_change() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 6, 80)
    up = changes(counts(base.tolist(), 8), counts((base + 2).tolist(), 8), resamples=2_000, seed=1)["pass@1"]
    assert up.difference.value == pytest.approx(0.25)
    assert up.difference.low == up.difference.high == pytest.approx(0.25) or up.difference.low > 0
    assert up.verdict() == "up"
    shuffled = base.copy()
    rng.shuffle(shuffled)
    none = changes(counts(base.tolist(), 8), counts(shuffled.tolist(), 8), resamples=2_000, seed=1)["pass@1"]
    assert none.verdict() == "unclear"
    assert none.p > 0.05


def test_paired_needs_pairs() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        changes(counts([1], 2), counts([1, 1], 2), resamples=10, seed=0)


def test_sharpening_is_said(campaign: Any) -> None:
    """Reliability up, reach down: the report says that it is sharpening, not that more was learned."""
    campaign.add("base", [3] * 30 + [1] * 6 + [0] * 4, 4)
    campaign.add("tuned", [4] * 30 + [0] * 6 + [0] * 4, 4)
    report = compute(campaign.run_dir, ReportOptions(prices=PRICES, resamples=1_000))
    said = " ".join([*report.comparisons[0].sentences, *report.comparisons[0].limits])
    assert "Sharpening: more tasks pass every time while fewer pass at all" in said
    assert "Tasks with 4 of 4 went up" in said
    assert "6 tasks lost the last success" in said
    assert "One training run" in said


def test_training_seeds_widen_the_interval(campaign: Any) -> None:
    base = [i % 9 for i in range(40)]
    campaign.add("base", base, 8)
    for seed, lift in ((1, 0), (2, 1), (3, 2)):
        campaign.add(f"tuned-seed{seed}", [min(8, c + lift) for c in base], 8)
    report = compute(campaign.run_dir, ReportOptions(prices=PRICES, resamples=1_000))
    (group,) = report.seed_groups
    assert (group.method, group.labels) == ("tuned", ["tuned-seed1", "tuned-seed2", "tuned-seed3"])
    figure, p = group.changes["pass@1"]
    single = report.comparisons[1].changes["pass@1"].difference
    assert figure.value == pytest.approx(np.mean([v["pass@1"] for v in group.per_seed.values()]))
    assert figure.high - figure.low > 3 * (single.high - single.low)
    assert p > 0.05, "three seeds that disagree support no change"
    text = terminal(report)
    assert "tuned: 3 training seeds against base" in text
    assert "one of 3 training seeds" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    # A leaderboard of four runs, best first.
    board = text.split("Leaderboard\n")[1].split("\n\n")[0].splitlines()[2:]
    assert [line.split()[0] for line in board] == ["tuned-seed3", "tuned-seed2", *board_rest(board)]


def board_rest(board: list[str]) -> list[str]:
    rest = [line.split()[0] for line in board[2:]]
    assert sorted(rest) == ["base", "tuned-seed1"], "these two have the same figures"
    return rest
