"""The plots are drawn, say what they should, and are the same bytes each time."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from stateward.config import Config
from stateward.difficulty import curate
from stateward.difficulty.plots import drift_plot, pool_plots

OUTCOMES = {"a.py:a": "ffffffff", "a.py:b": "pf", "a.py:c": "fffffffp", "a.py:d": "pppppppp"}


@pytest.fixture
def pool(config: Config, made: SimpleNamespace, tmp_path: Path, plots: None) -> curate.Pool:
    pytest.importorskip("matplotlib")
    stage = made.stage(tmp_path / "run", OUTCOMES)
    return curate.run(config, [stage], tasks=[made.task(u) for u in OUTCOMES], benchmark=[made.task("h.py:z")])


def texts(svg: bytes) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_pool_plots(pool: curate.Pool) -> None:
    files = {p.name: p.read_bytes() for p in (pool.folder / "plots").iterdir()}
    assert set(files) == {"rates.svg", "bands.svg", "trials.svg"}
    assert files == pool_plots(pool.decisions, pool.bands)
    assert any("passes / valid trials" in t for t in texts(files["rates.svg"]))
    assert {"difficult", "rarely", "nearly_always"} <= set(texts(files["bands.svg"]))
    assert "valid trials that the decision took" in texts(files["trials.svg"])


def test_drift_plot_holds_the_counts(pool: curate.Pool) -> None:
    svg = drift_plot({("difficult", "frequently"): 17, ("difficult", "difficult"): 4}, pool.bands)
    assert {"17", "4"} <= set(texts(svg))


def test_no_plots_without_matplotlib(config: Config, made: SimpleNamespace, tmp_path: Path) -> None:
    stage = made.stage(tmp_path / "run", OUTCOMES)
    found = curate.run(config, [stage], tasks=[made.task(u) for u in OUTCOMES], benchmark=[made.task("h.py:z")])
    assert not (found.folder / "plots").exists()
    assert any("matplotlib" in line for line in found.lines())
