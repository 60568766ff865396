"""What stands above the list of tasks: summary, reliability, figures, costs, training, conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stateward.evaluation.gather import Report
from stateward.evaluation.metrics import Figure, describe_metric, headline_ks
from stateward.evaluation.page_tables import html_table, leaderboard, text
from stateward.evaluation.plots import run_charts, training_charts
from stateward.evaluation.run import curve
from stateward.evaluation.sentences import percent
from stateward.evaluation.summary import Comparison, RunSummary
from stateward.evaluation.tables import TextTable, headline

#: Headings of the tables' sections, in order.
_FIGURES = {"success": "Success", "effort": "Effort and faults", "costs": "Costs"}


def sections(report: Report) -> Iterator[str]:
    """The sections as HTML, in order."""
    for warning in report.warnings():
        yield f'<div class="warn" role="alert">{text(warning)}</div>'
    yield from _summary(report)
    charts = run_charts(report.summaries, report.comparisons)
    if charts:
        yield '<h2 id="reliability">Reliability</h2><div class="charts">'
        for stem, svg in charts.items():
            yield _figure(svg, _curve_details(report.summaries) if stem == "curves" else "")
        yield "</div>"
    tables = list(report.tables())
    for kind, title in _FIGURES.items():
        here = [html_table(t) for t in tables if t.section == kind]
        if here:
            yield f'<h2 id="{kind}">{title}</h2><div class="tables">'
            yield from here
            yield "</div>"
            if kind == "success":
                yield _glossary(report.summaries)
    training = training_charts(report.training)
    if training:
        yield '<h2 id="training">Training</h2><div class="charts">'
        yield from map(_figure, training.values())
        yield "</div>"
    yield from _conditions(report)


def _summary(report: Report) -> Iterator[str]:
    yield '<h2 id="summary">Summary</h2>'
    by_label = {s.label: s for s in report.summaries}
    made = [c for c in report.comparisons if not c.refused]
    if len(report.summaries) > 2 or not made:
        yield leaderboard(report.summaries)
    for n, c in enumerate(made):
        inside = (
            '<div class="pair">'
            + html_table(headline(by_label[c.base], by_label[c.tuned], c), kind="headline")
            + f'<div class="findings"><h3>What is supported</h3>{_list(c.sentences)}'
            + f'<div class="faint">{_list(c.limits)}</div></div></div>'
        )
        if len(made) == 1:
            yield inside
        else:
            title = f"{escape(c.base)} against {escape(c.tuned)}"
            yield f"<details class='comparison'{' open' if n == 0 else ''}><summary>{title}</summary>{inside}</details>"
    if len(report.summaries) == 2 and made:
        yield leaderboard(report.summaries)


def _conditions(report: Report) -> Iterator[str]:
    yield '<h2 id="conditions">Conditions</h2>'
    yield "<p>Runs are compared only if these are equal, or if a difference was allowed by name.</p>"
    for c in report.comparisons:
        if c.differences:
            said = [f"{d.sentence()} ({'allowed' if d.allowed else 'not allowed'})" for d in c.differences]
            yield f"<h3>{escape(c.base)} and {escape(c.tuned)} differ in</h3>{_list(said)}"
    for s in report.summaries:
        rows = [[name, str(value)] for name, value in s.conditions.items()]
        table = html_table(TextTable(title=s.model, header=["condition", "value"], rows=rows), kind="conditions")
        yield f"<details><summary>{escape(s.label)} <code>{s.fingerprint}</code></summary>{table}</details>"


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{text(s)}</li>" for s in sentences) + "</ul>"


def _figure(svg: str, details: str = "") -> str:
    title = svg.partition("<title>")[2].partition("</title>")[0]  # as escaped as the chart has it
    return f"<figure><figcaption>{title}</figcaption>{svg}{details}</figure>"


def _curve_details(summaries: Sequence[RunSummary]) -> str:
    scored = [s for s in summaries if s.scored]
    header = ["k", *(f"{s.label} pass{kind}k" for s in scored for kind in ("@", "^"))]
    columns: list[list[Figure]] = [curve(s.figures, kind, s.trials) for s in scored for kind in ("@", "^")]
    rows = [
        [str(k + 1), *(percent(column[k].value) if k < len(column) else "–" for column in columns)]
        for k in range(max(map(len, columns)))
    ]
    table = html_table(TextTable(title="pass@k and pass^k", header=header, rows=rows))
    return f"<details><summary>the numbers</summary>{table}</details>"


def _glossary(summaries: Sequence[RunSummary]) -> str:
    k = next((s.trials for s in summaries if s.scored), 0)
    if not k:
        return ""
    some = next((q for q in headline_ks(k) if q > 1), 1)
    names = ["pass@1", "k/k", "any", *([f"pass@{some}", f"pass^{some}", f"pass^{some} plug-in"] if some > 1 else [])]
    items = "".join(f"<dt>{escape(n)}</dt><dd>{escape(describe_metric(n, k))}</dd>" for n in names)
    return f"<details><summary>what the metrics mean</summary><dl>{items}</dl></details>"


def changed_tasks(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
    """Task → kinds of change in the first comparison that was made."""
    out: dict[str, list[str]] = {}
    for c in comparisons:
        if c.transitions is None:
            continue
        t = c.transitions
        named = {
            "lost": t.lost_last_success,
            "unreliable": t.lost_reliability,
            "reliable": t.became_reliable,
            "first": t.first_success,
        }
        for kind, uids in named.items():
            for uid in uids:
                out.setdefault(uid, []).append(kind)
        break
    return out
