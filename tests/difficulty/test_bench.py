"""The benchmark's claims at its full size (rules), and its curation half at a small one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateward.difficulty import bench


@pytest.fixture(scope="module")
def rules() -> dict[tuple[str, int, str], dict[str, float]]:
    rows = bench.compare_rules(*bench.draw(bench.TASKS, 42))
    return {(r["profile"], r["trials"], r["rule"]): r for r in rows}


def test_population_is_the_published_base_policy() -> None:
    rates, _ = bench.draw(bench.TASKS, 42)
    base = bench.base_policy(rates, 42)
    assert base["mean"] == pytest.approx(0.51, abs=0.01)
    assert base["always"] == pytest.approx(0.08, abs=0.01)
    assert base["never"] == pytest.approx(0.08, abs=0.01)


@pytest.mark.parametrize(
    ("profile", "n", "most"), [("full", 8, 0.62), ("full", 16, 0.63), ("lora", 8, 0.80), ("lora", 16, 0.78)]
)
def test_curtailed_probing(
    rules: dict[tuple[str, int, str], dict[str, float]], profile: str, n: int, most: float
) -> None:
    row = rules[profile, n, "kept"]
    assert row["identical_pool"]
    assert row["share"] <= most
    assert row["share"] == pytest.approx(row["share_expected"], abs=0.005)
    assert row["share_least"] == pytest.approx(row["share_expected"])


@pytest.mark.parametrize("profile", ["full", "lora"])
@pytest.mark.parametrize("n", [8, 16])
def test_bounded_rule_is_near_the_least_that_any_rule_needs(
    rules: dict[tuple[str, int, str], dict[str, float]], profile: str, n: int
) -> None:
    row = rules[profile, n, "bounded"]
    assert row["differs_expected"] <= 0.02
    assert row["differs"] == pytest.approx(row["differs_expected"], abs=0.003)  # 3 standard errors of 20,000 tasks
    assert row["share_least"] <= row["share_expected"] <= row["share_least"] + 0.02
    # Against the true success rates, stopping early costs less than the decisions that differ.
    assert row["against_truth"] - row["against_truth_fixed"] < row["differs"]


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--json", str(tmp_path / "out.json"), "--tasks", "500", "--rows", "2000"]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    assert len(figures["rules"]) == 12
    by_kind = {row["kind"]: row for row in figures["curation"]}
    assert set(by_kind) == {"jsonl", "records"}
    for row in by_kind.values():
        assert row["rows"] == 2000
        assert row["tasks"] == 40
        assert row["seconds"] > 0
        assert row["peak_mb"] > 0
    assert by_kind["jsonl"]["selected"] == by_kind["records"]["selected"] > 0
    assert "| full | 8 | kept |" in capsys.readouterr().out
