"""The bench runs whole episodes and writes its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateward.practice import dataset_path
from stateward.sandbox import bench
from stateward.tasks import ToolSpec

GOLDEN = Path(__file__).parents[1] / "practice" / "golden"


@pytest.mark.slow
def test_figures_of_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CONCURRENCIES", (1, 2))
    monkeypatch.setattr(bench, "SOAK_CONCURRENCY", 2)
    tasks = str(dataset_path() / "orders_train.yaml")
    options = ["--calls", str(GOLDEN / "orders.yaml"), "--limit", "3", "--episodes", "6", "--soak", "8"]
    assert bench.main([tasks, *options, "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    for name in bench.FIGURES:
        assert set(figures[name]) == {"1", "2"}
        assert all(value > 0 for value in figures[name].values())
    for phases in figures["phases_ms"].values():
        assert set(phases) == {*bench.PHASES, "episode"}
        assert all(0 < phase["p50"] <= phase["p95"] for phase in phases.values())
    # Golden calls pass; what is repeated to make five of them may fail a check, but nothing is void.
    assert figures["outcomes"]["1"]["pass"] > 0
    assert set(figures["soak_outcomes"]["2"]) <= {"pass", "fail"}
    assert figures["soak_p95_ratio"]["2"] > 0
    assert "server orders: forked" in capsys.readouterr().out


def test_a_call_that_a_schema_allows() -> None:
    schema = {
        "properties": {"n": {"type": "integer"}, "how": {"enum": ["post", "mail"]}, "note": {}, "extra": {}},
        "required": ["n", "how", "note"],
    }
    assert bench.made_up(ToolSpec(name="send", input_schema=schema)) == ("send", {"n": 1, "how": "post", "note": "x"})
