"""Which charts a report has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateward.evaluation.charts import COLORS, Series, bar_chart, flow_chart, line_chart
from stateward.evaluation.comparison import STATES
from stateward.evaluation.run import curve
from stateward.evaluation.summary import Comparison, RunSummary
from stateward.evaluation.training_log import CURVES, PERCENT, TrainingLog


def run_charts(summaries: Sequence[RunSummary], comparisons: Sequence[Comparison]) -> dict[str, str]:
    """File stem → SVG: curves over k, reliability histogram, bands, and a flow for each comparison."""
    scored = [s for s in summaries if s.scored]
    charts: dict[str, str] = {}
    if not scored:
        return charts
    charts["curves"] = _curves(scored)
    chosen = _few(scored)
    k = max(s.trials for s in chosen)
    labels = [str(i) for i in range(k + 1)]
    bars = [(s.label, s.histogram + [0] * (k - s.trials)) for s in chosen]
    charts["reliability"] = bar_chart("Tasks by number of passed trials", labels, bars, x_label=f"passed of {k} trials")
    if all(s.bands for s in chosen):
        names = list(chosen[0].bands)
        bands = [(s.label, [s.bands.get(n, 0) for n in names]) for s in chosen]
        titles = [n.replace("_", " ") for n in names]
        charts["bands"] = bar_chart("Difficulty bands", titles, bands, x_label="band of the task's success rate")
    for c in comparisons:
        if c.transitions is not None:
            charts[f"flow-{c.tuned}"] = flow_chart(
                f"Where tasks went from {c.base} to {c.tuned}", STATES, c.transitions.table, (c.base, c.tuned)
            )
    return charts


def training_charts(logs: Mapping[str, TrainingLog]) -> dict[str, str]:
    """File stem → SVG of the training's curves; those without a single figure are left out.

    Several trainings share a chart: the colour tells them apart, and solid from dashed the two curves of a chart.
    """
    charts = {}
    for title, lines in CURVES.items():
        series = []
        for n, (where, log) in enumerate(logs.items()):
            for line, (name, read) in enumerate(lines):
                x, y = log.series(read)
                if not x:
                    continue
                if len(logs) == 1:
                    series.append(Series(name=name, x=x, y=y, color=line))
                else:
                    legend = "" if line else where
                    named = f"{where}: {name}"
                    series.append(Series(name=named, legend=legend, x=x, y=y, color=n % COLORS, dashed=line > 0))
        if series:
            label = "step"
            if len(logs) > 1 and len(lines) > 1:
                label = f"step (solid: {lines[0][0]}, dashed: {lines[1][0]})"
            stem = f"train {title}".lower().replace(" ", "-")
            charts[stem] = line_chart(title, series, x_label=label, percent=title in PERCENT)
    return charts


#: With more runs than these, bars stand too thin and bands hide each other.
_FEW = 3


def _few(scored: Sequence[RunSummary]) -> list[RunSummary]:
    """The first run, which is the baseline, and the best of the others."""
    best = sorted(scored[1:], key=lambda s: s.figures["pass@1"].value, reverse=True)[: _FEW - 1]
    return [scored[0], *(s for s in scored[1:] if s in best)]


def _curves(scored: Sequence[RunSummary]) -> str:
    series = []
    for n, s in enumerate(scored):
        xs = [float(k) for k in range(1, s.trials + 1)]
        for kind in ("^", "@"):
            figures = curve(s.figures, kind, s.trials)
            series.append(
                Series(
                    name=f"{s.label} pass{kind}k",
                    legend=s.label if kind == "^" else "",
                    x=xs,
                    y=[f.value for f in figures],
                    low=[f.low for f in figures] if len(scored) <= _FEW else (),
                    high=[f.high for f in figures] if len(scored) <= _FEW else (),
                    color=n % COLORS,
                    dashed=kind == "@",
                )
            )
    label = "k (dashed: pass@k, solid: pass^k)"
    return line_chart("pass@k and pass^k", series, x_label=label, percent=True, y_range=(0.0, 1.0))
