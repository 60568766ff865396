from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.evaluation.report import ReportOptions, build, compute, terminal

ROOT = Path(__file__).parents[2]
PRICES = ROOT / "configs" / "prices.yaml"


def spread(total: int, full: int, none: int, tasks: int, trials: int) -> list[int]:
    """Passes by task: `full` tasks with all, `none` with none, the rest of `total` dealt out evenly between."""
    middle = tasks - full - none
    share, rest = divmod(total - full * trials, middle)
    assert 0 < share < trials - 1
    return [trials] * full + [0] * none + [share + (i < rest) for i in range(middle)]


@pytest.fixture
def published(campaign: Any, tmp_path: Path) -> tuple[Path, Path]:
    """The counts and costs of the published run, and a price list that makes these costs."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("models: {practice: {input: 0, cached: 0, output: 100}}\n")
    campaign.add("base", spread(5242, 38, 507 - 453, 507, 20), 20, completion_tokens=9_258_000, messages=[])
    campaign.add("tuned", spread(6163, 107, 507 - 446, 507, 20), 20, completion_tokens=8_555_800, messages=[])
    return campaign.run_dir, prices


@pytest.mark.slow
def test_published_numbers(published: tuple[Path, Path]) -> None:
    run_dir, prices = published
    text = terminal(build(run_dir, ReportOptions(prices=prices, resamples=500)))
    rows = {line[:17].strip(): line.split() for line in text.splitlines()[3:13]}
    table = "\n".join(text.splitlines()[:14])
    for row in (
        "trials passed       5,242    6,163      of 10,140",
        "pass@1            51.70 %  60.78 %   +9.08 points",
        "tasks 20/20            38      107         of 507",
        "share 20/20        7.50 %  21.10 %  +13.61 points",
        "tasks ≥ 1             453      446         of 507",
        "share ≥ 1         89.35 %  87.97 %   −1.38 points",
        "cost              $925.80  $855.58         −7.6 %",
        "cost per success   $0.177   $0.139        −21.4 %",
        "cost per 20/20     $24.36    $8.00        −67.2 %",
    ):
        assert row in table, (row, rows)
    assert max(map(len, text.split("\n\n•")[0].splitlines())) <= 80
    data = json.loads((run_dir / "report" / "report.json").read_text())
    assert data["complete"] is True
    assert (run_dir / "report" / "DONE").exists()
    base, tuned = data["runs"]["base"], data["runs"]["tuned"]
    assert (base["successes"], tuned["successes"]) == (5242, 6163)
    assert base["figures"]["pass@1"]["value"] == pytest.approx(5242 / 10140)
    assert tuned["figures"]["pass^20"]["value"] == pytest.approx(107 / 507)
    assert tuned["costs"]["per_reliable"] == pytest.approx(855.58 / 107)
    assert len(base["per_task"]) == 507


def test_partial_runs_are_marked_and_not_scored(campaign: Any) -> None:
    campaign.add("base", [2, 1], 2)
    campaign.add("tuned", [2, 2], 2, voids=[(0, 0)])
    report = build(campaign.run_dir, ReportOptions(prices=PRICES, resamples=200))
    assert not report.complete
    text = terminal(report)
    assert "PARTIAL: tuned is not scored" in text
    assert "NOT COMPARED: run tuned is not complete" in text
    assert "base against tuned" not in text
    assert [line.split() for line in text.splitlines() if line.startswith("tuned ")][1] == [
        *("tuned", "3", "3", "4", "100.00", "%")
    ]
    data = json.loads((campaign.run_dir / "report" / "report.json").read_text())
    assert "figures" not in data["runs"]["tuned"]
    assert data["runs"]["tuned"]["owed"] == [f"{campaign.uids[0]}#0"]
    assert data["runs"]["tuned"]["so_far"]["figures"]["k/k"]["value"] is None
    assert data["comparisons"][0]["changes"] == {}
    assert not (campaign.run_dir / "report" / "DONE").exists()
    assert "not scored" in (campaign.run_dir / "report" / "report.md").read_text()


def test_other_settings_are_refused_until_named(campaign: Any) -> None:
    campaign.add("base", [2, 1], 2)
    warm = {"sampling": {"temperature": 0.7, "top_k": 20}, "episode": {"max_agent_turns": 60}}
    campaign.add("tuned", [2, 2], 2, settings=warm)
    report = compute(campaign.run_dir, ReportOptions(prices=PRICES, resamples=200))
    (c,) = report.comparisons
    assert "settings.sampling.temperature: 1.0 → 0.7" in c.refused
    assert "--allow-difference settings.sampling.temperature" in c.refused
    assert c.changes == {}
    allowed = ["settings.sampling.temperature", "settings.episode"]
    report = compute(campaign.run_dir, ReportOptions(prices=PRICES, resamples=200, allow=allowed))
    (c,) = report.comparisons
    assert not c.refused
    assert any("differ, as allowed, in settings.sampling.temperature: 1.0 → 0.7" in s for s in c.sentences)
    with pytest.raises(UserError, match="no such condition") as caught:
        compute(campaign.run_dir, ReportOptions(prices=PRICES, allow=["settings.sampling.temprature"]))
    assert "settings.sampling.temperature" in caught.value.do


def test_other_tasks_cannot_be_allowed(campaign: Any) -> None:
    campaign.add("base", [2, 1], 2)
    campaign.uids = ["x.py:test_1", "x.py:test_2"]
    campaign.add("tuned", [2, 2], 2)
    options = ReportOptions(prices=PRICES, resamples=200, allow=["tasks_listed"])
    (c,) = compute(campaign.run_dir, options).comparisons
    assert "other tasks" in c.refused


def test_no_runs_and_wrong_baseline(tmp_path: Path, campaign: Any) -> None:
    with pytest.raises(UserError, match="holds no evaluation"):
        compute(tmp_path, ReportOptions(prices=PRICES))
    campaign.add("base", [1], 1)
    with pytest.raises(UserError, match="no run is called 'bse'") as caught:
        compute(campaign.run_dir, ReportOptions(prices=PRICES, baseline="bse"))
    assert "'base'" in caught.value.do


def test_the_job(run_job: Callable[..., subprocess.CompletedProcess[str]], campaign: Any, tmp_path: Path) -> None:
    """The job: figures as JSON, the exit status, the viewer, a user's mistake without a traceback."""
    campaign.add("base", [2, 1], 2)
    run_dir = str(campaign.run_dir)
    done = run_job("report", run_dir, "--json", str(tmp_path / "f.json"), "--bootstrap", "100")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "f.json").read_text())["runs"]["base"]["successes"] == 3
    shown = run_job("report", run_dir, "--trial", f"{campaign.uids[0]}:1")
    assert shown.returncode == 0, shown.stderr
    for part in ("Please order item 1.", '→ order({"item": 1, "n": 2})', "state difference (1 rows)", "  + 2"):
        assert part in shown.stdout
    wrong = run_job("report", run_dir, "--trial", "nothing:1")
    assert wrong.returncode == 2
    assert "do:" in wrong.stderr or "why:" in wrong.stderr
    campaign.add("tuned", [2, 1], 2, skip=[(0, 0)])
    assert run_job("report", run_dir, "--bootstrap", "100").returncode == 1
