"""Tables of the HTML page, and the leaderboard, which draws every interval on a common axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stateward.evaluation.metrics import Figure
from stateward.evaluation.sentences import dollars, percent
from stateward.evaluation.summary import RunSummary
from stateward.evaluation.tables import TextTable, ranked, runs_title

_PLOT = (180, 18)  # pixels of one interval's drawing


def text(value: str) -> str:
    """Escaped, with figures and their units kept on one line."""
    if value == "undefined":
        return '<span class="undefined">undefined</span>'
    for unit in (" %", " points", "p = ", "p < "):
        value = value.replace(unit, unit.replace(" ", "\u00a0"))
    return escape(value)


def html_table(table: TextTable, *, kind: str = "") -> str:
    """A table with a caption and header cells, scrolling sideways by itself where the window is narrow."""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in table.header)
    rows = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>' + "".join(f"<td>{text(c)}</td>" for c in row[1:]) + "</tr>"
        for row in table.rows
    )
    return _scrolling(table.title, f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", kind)


def leaderboard(summaries: Sequence[RunSummary]) -> str:
    """Runs, best first, with pass@1 and k/k as figures and as intervals from 0 to 100 %."""
    trials = {s.trials for s in summaries}
    always = f"{trials.pop()}" if len(trials) == 1 else "k"
    columns = ("run", "model", "pass@1", "0 to 100 %", f"{always}/{always}", "0 to 100 %", "cost", "per success")
    head = "".join(f'<th scope="col">{text(c)}</th>' for c in (*columns, "conditions"))
    rows = []
    for s in ranked(summaries):
        cells = ['<td colspan="4">partial, not scored</td>']
        if s.scored:
            cells = [part for name in ("pass@1", "k/k") for part in _figure_cells(s.figures[name])]
        money = [
            dollars(v) if v == v else "–" for v in (s.costs.total, s.costs.per_success if s.scored else s.costs.total)
        ]
        rows.append(
            f'<tr><th scope="row">{text(s.label)}</th><td class="model" title="{escape(s.model)}">'
            f"{text(short_model(s.model))}</td>{''.join(cells)}<td>{money[0]}</td><td>{money[1]}</td>"
            f'<td><code title="{s.fingerprint}">{s.fingerprint[:6]}</code></td></tr>'
        )
    title = runs_title(summaries)
    note = "95 % intervals; runs under the same conditions may be compared"
    return _scrolling(title, f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>", "leaderboard", note)


def short_model(model: str) -> str:
    """The last two parts of a path: ``merged`` alone says little."""
    return "/".join(model.rstrip("/").split("/")[-2:])


def _figure_cells(figure: Figure) -> list[str]:
    if figure.value != figure.value:
        return [f'<td colspan="2" title="{escape(figure.reason)}">undefined</td>']
    return [f"<td>{text(percent(figure.value))}</td>", f'<td class="plot">{interval_plot(figure)}</td>']


def interval_plot(figure: Figure) -> str:
    """A figure as a dot, and its interval as a line, on an axis from 0 to 1."""
    wide, high = _PLOT
    at = [6 + (wide - 12) * x for x in (0.0, 0.25, 0.5, 0.75, 1.0)]
    grid = "".join(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="1" y2="{high - 1}" stroke="var(--grid)"/>' for x in at)
    dot = 6 + (wide - 12) * figure.value
    said, line = percent(figure.value), ""
    if figure.low == figure.low:
        a, b = (6 + (wide - 12) * v for v in (figure.low, figure.high))
        line = f'<line x1="{a:.1f}" x2="{b:.1f}" y1="9" y2="9" stroke="var(--s0)" stroke-width="3" opacity=".45"/>'
        said += f", 95 % interval {figure.low * 100:.1f} to {figure.high * 100:.1f}"
    return (
        f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="{said}">'
        f'<title>{said}</title>{grid}{line}<circle cx="{dot:.1f}" cy="9" r="4" fill="var(--s0)"/></svg>'
    )


def _scrolling(title: str, inside: str, kind: str, note: str = "") -> str:
    said = f" <span>{text(note)}</span>" if note else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table class="{kind}">'
        f"<caption>{text(title)}{said}</caption>{inside}</table></div>"
    )
