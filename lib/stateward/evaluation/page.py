"""The report as one HTML file: no network, light and dark, usable by keyboard and screen reader."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from stateward.evaluation.conversations import Packed, pack
from stateward.evaluation.gather import Report
from stateward.evaluation.page_sections import changed_tasks, sections

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
    changed = changed_tasks(report.comparisons)
    body = "\n".join(sections(report)) + _tasks(report, uids, changed)
    frame = _document(report, f"Report of {report.run_dir.resolve().name}", body, nav=True, blocks={})
    room = page_bytes - len(frame.encode()) - 200 * len(uids)
    first = [uid for uid in uids if changed.get(uid)] + [uid for uid in uids if not changed.get(uid)]
    packed = pack(report.runs, uids, room, directory=str(report.run_dir), first=first)
    return _document(report, f"Report of {report.run_dir.resolve().name}", body, nav=True, blocks=packed.blocks)


def task_page(report: Report, uid: str) -> str:
    """A page of one task with every conversation whole."""
    body = _tasks(report, [uid], changed_tasks(report.comparisons))
    packed: Packed = pack(report.runs, [uid], 1 << 40, directory=str(report.run_dir))
    return _document(report, uid, body, nav=False, blocks=packed.blocks)


def _tasks(report: Report, uids: Sequence[str], changed: dict[str, list[str]]) -> str:
    """The list of tasks; scripts open them. Figures stand in the rows, so the list says something without scripts."""
    counts = [{uid: i for i, uid in enumerate(run.counts.uids)} for run in report.runs]
    domains: dict[str, str] = {}
    rows = []
    for n, uid in enumerate(uids):
        cells = []
        for run, at in zip(report.runs, counts, strict=True):
            if uid not in at:
                cells.append('<td class="rate" data-v="-1">–</td>')
                continue
            i = at[uid]
            domains[uid] = run.counts.domains[i] or domains.get(uid, "")
            passes, valid, void = (int(a[i]) for a in (run.counts.passes, run.counts.valid, run.counts.void))
            note = f", {void} void" if void else ""
            rate = passes / valid if valid else -1.0
            bar = f' style="--p:{max(rate, 0):.3f}"'
            cells.append(f'<td class="rate" data-v="{rate:.4f}"{bar}>{passes}/{valid}{note}</td>')
        kinds = changed.get(uid, [])
        words = ", ".join(_CHANGES[k] for k in kinds)
        rows.append(
            f'<tr data-task="{n}" data-uid="{escape(uid)}" data-domain="{escape(domains.get(uid, ""))}" '
            f'data-change="{" ".join(kinds)}"><th scope="row"><button type="button" class="open" '
            f'aria-expanded="false"><span>{escape(uid).replace(":", ":<wbr>")}</span></button></th>'
            f"<td>{escape(domains.get(uid, ''))}</td>"
            f'{"".join(cells)}<td class="moved">{words}</td></tr>'
        )
    names = ["task", "domain", *(run.label for run in report.runs), "change"]
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in names)
    choices = "".join(f"<option>{escape(d)}</option>" for d in sorted(set(domains.values())))
    kinds_of_change = "".join(f'<option value="{k}">{v}</option>' for k, v in _CHANGES.items())
    return (
        f'<h2 id="tasks">{"Tasks" if len(uids) > 1 else "Trials"} and conversations</h2>'
        f'<div class="tools"{"" if len(uids) > 1 else " hidden"}>'
        '<label>find<input id="filter" type="search" autocomplete="off"></label>'
        f'<label>domain<select id="domain"><option value="">all</option>{choices}</select></label>'
        f'<label>change<select id="change"><option value="">all</option>{kinds_of_change}</select></label>'
        '<span id="count" role="status" aria-live="polite"></span></div>'
        "<noscript><p>Opening a task needs JavaScript; the figures above and below do not.</p></noscript>"
        '<div class="scroll"><table id="task-list">'
        "<caption>Tasks <span>passed of valid trials; a task opens to its trials</span></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _document(report: Report, title: str, body: str, *, nav: bool, blocks: dict[str, str]) -> str:
    about = _about(report) if nav else f"one task in {escape(report.run_dir.resolve().name)}"
    page = files("stateward.evaluation") / "page"
    css, script = ((page / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = "\n".join(f'<script type="application/octet-stream" id="{i}">{text}</script>' for i, text in blocks.items())
    links = ["summary", "reliability", "success", "effort", "costs", "training", "conditions", "tasks"]
    items = "".join(f'<li><a href="#{i}">{i}</a></li>' for i in links if f'id="{i}"' in body)
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(report.generated))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css}</style></head><body>"
        '<a class="skip" href="#main">skip to the report</a>'
        f'<header><h1>{escape(title)}</h1><p class="faint">{about}<br>'
        f"{escape(str(report.run_dir))}, made {when} UTC</p></header>"
        + (f'<nav aria-label="sections"><ul>{items}</ul></nav>' if nav else "")
        + f'<main id="main">{body}</main>'
        f"<footer>Made by stateward. Intervals are 95 %.</footer>{data}<script>{script}</script></body></html>\n"
    )


def _about(report: Report) -> str:
    """How much stands behind the page, in words."""
    tasks = {s.tasks for s in report.summaries}
    trials = {s.trials for s in report.summaries}
    size = f"{tasks.pop():,} tasks × {trials.pop()} trials" if len(tasks) == len(trials) == 1 else "unequal runs"
    episodes = sum(len(run.records) for run in report.runs)
    runs = f"{len(report.runs)} run" + ("" if len(report.runs) == 1 else "s")
    return f"{runs}, {size}, {episodes:,} episodes"
