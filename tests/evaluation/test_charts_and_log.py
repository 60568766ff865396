from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from stateward.evaluation.charts import Series, bar_chart, flow_chart, line_chart, standalone
from stateward.evaluation.plots import training_charts
from stateward.evaluation.training_log import CURVES, read_training_log, read_training_logs

SVG = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def test_lines_are_where_the_numbers_are() -> None:
    svg = line_chart("T <&>", [Series(name="a", x=[1, 2, 3], y=[0.0, 0.5, 1.0], color=0)], x_label="k", percent=True)
    root = parse(svg)
    (line,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, p.split(","))) for p in (line.get("points") or "").split()]
    assert points[1] == ((points[0][0] + points[2][0]) / 2, (points[0][1] + points[2][1]) / 2)
    assert points[0][1] > points[2][1], "up is more"
    assert root.get("role") == "img"
    assert root.get("aria-label") == "T <&>"
    assert [t.text for t in root.iter(f"{SVG}desc")] == ["a: 0 % to 100 %"]
    assert "100 %" in [t.text for t in root.iter(f"{SVG}text")]
    parse(standalone(svg))


def test_a_gap_is_a_gap_and_a_single_point_is_seen() -> None:
    y = [1.0, math.nan, 3.0, 4.0]
    root = parse(line_chart("T", [Series(name="a", x=[1, 2, 3, 4], y=y, color=0)], x_label="step"))
    assert len(list(root.iter(f"{SVG}polyline"))) == 2
    assert len(list(root.iter(f"{SVG}circle"))) == 1


@pytest.mark.parametrize(
    "svg",
    [
        line_chart("T", [Series(name="a", x=[1], y=[math.nan], color=0)], x_label="k"),
        bar_chart("T", ["0"], [("a", [0])], x_label="k"),
        flow_chart("T", ["x", "y"], [[0, 0], [0, 0]], ("a", "b")),
    ],
)
def test_nothing_to_show_says_so(svg: str) -> None:
    assert [t.text for t in parse(svg).iter(f"{SVG}text")] == ["no data"]


def test_bars_and_flows_carry_their_numbers() -> None:
    root = parse(bar_chart("T", ["0", "1"], [("base", [3, 5]), ("tuned", [1, 7])], x_label="passed"))
    bars = [(r.find(f"{SVG}title").text, float(r.get("height") or 0)) for r in root.iter(f"{SVG}rect")]  # type: ignore[union-attr]
    assert [t for t, _ in bars] == ["base, 0: 3", "base, 1: 5", "tuned, 0: 1", "tuned, 1: 7"]
    assert bars[3][1] / bars[0][1] == pytest.approx(7 / 3, rel=0.02)
    root = parse(flow_chart("T", ["never", "always"], [[2, 1], [0, 4]], ("base", "tuned")))
    assert [p.find(f"{SVG}title").text for p in root.iter(f"{SVG}path")] == [  # type: ignore[union-attr]
        "2 tasks: never → never",
        "1 tasks: never → always",
        "4 tasks: always → always",
    ]


def test_ticks_of_small_shares_differ() -> None:
    svg = line_chart("T", [Series(name="a", x=[1, 2], y=[0.0, 0.014], color=0)], x_label="step", percent=True)
    ticks = [t.text for t in parse(svg).iter(f"{SVG}text") if t.text and "%" in t.text]
    assert len(ticks) == len(set(ticks)) > 2
    flat = line_chart("T", [Series(name="a", x=[1, 2], y=[0.0, 0.0], color=0)], x_label="step", percent=True)
    assert len([t for t in parse(flat).iter(f"{SVG}text") if t.text and "%" in t.text]) > 2


def test_training_log_takes_the_later_line_of_a_step_and_counts_torn_ones(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "reward_mean": 0.1, "voids": {"sandbox": 2}, "episodes_run": 8, "pass_rate": None},
        {"step": 2, "reward_mean": 0.9},
        {"step": 2, "reward_mean": 0.2, "logprob_difference": {"mean": -0.01, "mean_absolute": 0.03}},
    ]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 3, "rew')
    log = read_training_log(file)
    assert [r["step"] for r in log.rows] == [1, 2]
    assert log.torn == 1
    read = {title: [log.series(reader) for _, reader in lines] for title, lines in CURVES.items()}
    assert read["Reward"] == [([1, 2], [0.1, 0.2]), ([], [])]
    assert read["Voids"] == [([1], [0.25])]
    assert read["Sampler against trainer"] == [([2], [0.01]), ([2], [0.03])]
    assert set(training_charts({"train": log})) == {"train-reward", "train-voids", "train-sampler-against-trainer"}
    assert read_training_log(tmp_path / "none").rows == []


def test_every_seed_of_a_campaign_has_its_curves(tmp_path: Path) -> None:
    for folder in ("train", "seeds/1/train", "seeds/2/train"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.jsonl").write_text('{"step": 1, "reward_mean": 0.5}\n' * (folder != "train"))
    logs = read_training_logs(tmp_path)
    assert list(logs) == ["seeds/1/train", "seeds/2/train"], "the first was begun and has no step yet"
    charts = training_charts(logs)
    assert list(charts) == ["train-reward"], "several trainings share a chart"
    texts = [t.text for t in parse(charts["train-reward"]).iter(f"{SVG}text")]
    assert {"seeds/1/train", "seeds/2/train"} <= set(texts)
