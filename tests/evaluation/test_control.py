"""A control beside the real trainings: both against the base, each with its own seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stateward.evaluation.report import ReportOptions, compute, terminal

PRICES = Path(__file__).parents[2] / "configs" / "prices.yaml"


def test_the_report_sets_a_control_of_several_seeds_beside_the_trainings(campaign: Any) -> None:
    base = [i % 7 for i in range(40)]
    campaign.add("base", base, 8)
    for seed in (1, 2, 3):
        campaign.add(f"tuned-seed{seed}", [min(8, c + 2 - (i + seed) % 3 // 2) for i, c in enumerate(base)], 8)
        campaign.add(f"control-seed{seed}", [max(0, c + (i + seed) % 3 - 1) for i, c in enumerate(base)], 8)
    report = compute(campaign.run_dir, ReportOptions(prices=PRICES, resamples=1_000))
    groups = {group.method: group for group in report.seed_groups}
    assert sorted(groups) == ["control", "tuned"]
    assert groups["control"].labels == ["control-seed1", "control-seed2", "control-seed3"]
    real, _ = groups["tuned"].changes["pass@1"]
    control, p = groups["control"].changes["pass@1"]
    assert real.low > 0, "the trainings rise"
    assert control.low < 0 < control.high, "the control does not"
    assert p > 0.05
    text = terminal(report)
    assert "tuned: 3 training seeds against base" in text
    assert "control: 3 training seeds against base" in text
    assert len(report.comparisons) == 6
