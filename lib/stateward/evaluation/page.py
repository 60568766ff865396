"""The report as one HTML file: no network, light and dark, usable by keyboard and screen reader."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from stateward.evaluation.conversations import Packed, pack
from stateward.evaluation.gather import Report
from stateward.evaluation.metrics import Figure
from stateward.evaluation.plots import run_charts, training_charts
from stateward.evaluation.run import curve
from stateward.evaluation.sentences import percent
from stateward.evaluation.summary import Comparison, RunSummary
from stateward.evaluation.tables import TextTable, headline

#: The page is held under 15 MB, with room for what surrounds the conversations.
PAGE_BYTES = 14_500_000
#: Nothing may be loaded from anywhere.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_CHANGES = {
    "reliable": "became reliable",
    "unreliable": "lost reliability",
    "first": "first success",
    "lost": "lost the last success",
}


def report_page(report: Report, *, page_bytes: int = PAGE_BYTES) -> str:
    """The whole report as HTML of at most `page_bytes` bytes."""
    uids = sorted({uid for run in report.runs for uid in run.plan.uids})
    sections = list(_sections(report))
    changed = _changes(report.comparisons)
    body = "\n".join(sections) + _tasks(report, uids, changed)
    frame = _document(report, f"Report of {report.run_dir.resolve().name}", body, nav=True, blocks={})
    room = page_bytes - len(frame.encode()) - 200 * len(uids)
    first = [uid for uid in uids if changed.get(uid)] + [uid for uid in uids if not changed.get(uid)]
    packed = pack(report.runs, uids, room, directory=str(report.run_dir), first=first)
    return _document(report, f"Report of {report.run_dir.resolve().name}", body, nav=True, blocks=packed.blocks)


def task_page(report: Report, uid: str) -> str:
    """A page of one task with every conversation whole."""
    body = _tasks(report, [uid], _changes(report.comparisons))
    packed: Packed = pack(report.runs, [uid], 1 << 40, directory=str(report.run_dir))
    return _document(report, uid, body, nav=False, blocks=packed.blocks)


def html_table(table: TextTable, *, kind: str = "") -> str:
    """A table with a caption and header cells, scrolling sideways by itself where the window is narrow."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in row[1:]) + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}"><table class="{kind}">'
        f"<caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _sections(report: Report) -> Iterator[str]:
    by_label = {s.label: s for s in report.summaries}
    for warning in report.warnings():
        yield f'<div class="warn" role="alert">{escape(warning)}</div>'
    yield '<h2 id="summary">Summary</h2>'
    for c in report.comparisons:
        if not c.refused:
            yield html_table(headline(by_label[c.base], by_label[c.tuned], c), kind="headline")
            yield f"<h3>What is supported: {escape(c.base)} against {escape(c.tuned)}</h3>"
            yield "<ul>" + "".join(f"<li>{escape(s)}</li>" for s in c.sentences) + "</ul>"
    charts = run_charts(report.summaries, report.comparisons)
    if charts:
        yield '<h2 id="reliability">Reliability</h2><div class="charts">'
        for stem, svg in charts.items():
            details = _curve_details(report.summaries) if stem == "curves" else ""
            yield _figure(svg, details)
        yield "</div>"
    titles = {f"{c.base} against {c.tuned}" for c in report.comparisons}  # these stand in the summary
    yield '<h2 id="figures">Figures</h2><div class="tables">'
    yield from (html_table(table) for table in report.tables() if table.title not in titles)
    yield "</div>"
    training = training_charts(report.training)
    if training:
        yield '<h2 id="training">Training</h2><div class="charts">'
        yield from map(_figure, training.values())
        yield "</div>"
    yield '<h2 id="conditions">Conditions</h2>'
    yield "<p>Runs are compared only if these are equal, or if a difference was allowed by name.</p>"
    for c in report.comparisons:
        if c.differences:
            said = "".join(
                f"<li>{escape(d.sentence())} ({'allowed' if d.allowed else 'not allowed'})</li>" for d in c.differences
            )
            yield f"<h3>{escape(c.base)} and {escape(c.tuned)} differ in</h3><ul>{said}</ul>"
    for s in report.summaries:
        rows = [[name, str(value)] for name, value in s.conditions.items()]
        table = TextTable(title=f"{s.label}: {s.model}", header=["condition", "value"], rows=rows)
        yield f"<details><summary>{escape(s.label)} <code>{s.fingerprint}</code></summary>{html_table(table)}</details>"


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


def _changes(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
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


def _tasks(report: Report, uids: Sequence[str], changed: dict[str, list[str]]) -> str:
    """The list of tasks; scripts open them. Figures stand in the rows, so the list says something without scripts."""
    counts = [{uid: i for i, uid in enumerate(run.counts.uids)} for run in report.runs]
    domains: dict[str, str] = {}
    rows = []
    for n, uid in enumerate(uids):
        cells = []
        for run, at in zip(report.runs, counts, strict=True):
            if uid not in at:
                cells.append('<td data-v="-1">–</td>')
                continue
            i = at[uid]
            domains[uid] = run.counts.domains[i] or domains.get(uid, "")
            passes, valid, void = (int(a[i]) for a in (run.counts.passes, run.counts.valid, run.counts.void))
            note = f", {void} void" if void else ""
            cells.append(f'<td data-v="{passes / valid if valid else -1:.4f}">{passes}/{valid}{note}</td>')
        kinds = changed.get(uid, [])
        words = ", ".join(_CHANGES[k] for k in kinds)
        rows.append(
            f'<tr data-task="{n}" data-uid="{escape(uid)}" data-domain="{escape(domains.get(uid, ""))}" '
            f'data-change="{" ".join(kinds)}"><th scope="row"><button type="button" class="open" '
            f'aria-expanded="false">{escape(uid)}</button></th><td>{escape(domains.get(uid, ""))}</td>'
            f"{''.join(cells)}<td>{words}</td></tr>"
        )
    names = ["task", "domain", *(run.label for run in report.runs), "change"]
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in names)
    choices = "".join(f"<option>{escape(d)}</option>" for d in sorted(set(domains.values())))
    kinds_of_change = "".join(f'<option value="{k}">{v}</option>' for k, v in _CHANGES.items())
    return (
        '<h2 id="tasks-and-conversations">Tasks and conversations</h2>'
        '<div class="tools"><label>find<input id="filter" type="search" autocomplete="off"></label>'
        f'<label>domain<select id="domain"><option value="">all</option>{choices}</select></label>'
        f'<label>change<select id="change"><option value="">all</option>{kinds_of_change}</select></label>'
        '<span id="count" role="status" aria-live="polite"></span></div>'
        "<noscript><p>Opening a task needs JavaScript; the figures above and below do not.</p></noscript>"
        f'<div class="scroll"><table id="tasks"><caption>Passed of valid trials; a task opens to its trials</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _document(report: Report, title: str, body: str, *, nav: bool, blocks: dict[str, str]) -> str:
    page = files("stateward.evaluation") / "page"
    css, script = ((page / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = "\n".join(f'<script type="application/octet-stream" id="{i}">{text}</script>' for i, text in blocks.items())
    links = ["summary", "reliability", "figures", "training", "conditions", "tasks-and-conversations"]
    items = "".join(f'<li><a href="#{i}">{i.replace("-", " ")}</a></li>' for i in links if f'id="{i}"' in body)
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(report.generated))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css}</style></head><body>"
        '<a class="skip" href="#main">skip to the report</a>'
        f'<header><h1>{escape(title)}</h1><p class="faint">{escape(str(report.run_dir))}, made {when} UTC</p>'
        + (f'<nav aria-label="sections"><ul>{items}</ul></nav>' if nav else "")
        + f'</header><main id="main">{body}</main>'
        f"<footer>Made by stateward. Intervals are 95 %.</footer>{data}<script>{script}</script></body></html>\n"
    )
