"""Build a campaign's report: terminal text, ``report.md`` with charts, ``report.html``, and every figure as JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from stateward.errors import UserError, nearest
from stateward.evaluation.charts import standalone
from stateward.evaluation.comparison import Transitions
from stateward.evaluation.gather import Report, ReportOptions, compute
from stateward.evaluation.page import report_page, task_page
from stateward.evaluation.plots import run_charts, training_charts
from stateward.store.stage import git_state, package_versions, write_json

__all__ = ["Report", "ReportOptions", "build", "build_task", "compute", "markdown", "terminal"]


def build(run_dir: Path, options: ReportOptions) -> Report:
    """Compute the report of `run_dir` and write ``report/``: report.html, report.md with charts, report.json.

    The marker `DONE` is written if every run is scored.
    """
    report = compute(run_dir, options)
    folder = run_dir / "report"
    (folder / "DONE").unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    charts = {**run_charts(report.summaries, report.comparisons), **training_charts(report.training)}
    for stem, svg in charts.items():
        (folder / f"{stem}.svg").write_text(standalone(svg), encoding="utf-8")
    (folder / "report.md").write_text(markdown(report, list(charts)), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report.to_json(), indent=1, allow_nan=False), encoding="utf-8")
    (folder / "report.html").write_text(report_page(report), encoding="utf-8")
    made = {
        "created": report.generated,
        "runs": {s.label: s.fingerprint for s in report.summaries},
        "options": {**vars(options), "prices": str(options.prices), "allow": list(options.allow)},
        "versions": package_versions(),
        "git": git_state(),
    }
    write_json(folder / "manifest.json", made)
    if all(s.scored for s in report.summaries):  # runs that may not be compared are an answer, a partial run is not
        write_json(folder / "DONE", {"time": report.generated, "complete": report.complete})
    return report


def build_task(run_dir: Path, uid: str, options: ReportOptions) -> Path:
    """Write a page of one task with all its conversations whole; returns its path.

    Raises:
        UserError: no run has such a task.
    """
    report = compute(run_dir, options)
    known = {u for run in report.runs for u in run.plan.uids}
    if uid not in known:
        raise UserError(f"no run of {run_dir} has a task {uid!r}", do=nearest(uid, known))
    folder = run_dir / "report"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"task-{re.sub(r'[^A-Za-z0-9]+', '-', uid).strip('-')}.html"
    path.write_text(task_page(report, uid), encoding="utf-8")
    return path


def terminal(report: Report) -> str:
    """The report for an 80-column terminal."""
    parts = [*map(_wrapped, report.warnings()), *(t.terminal() for t in report.tables())]
    for c in report.comparisons:
        bullets = [textwrap.fill(s, 80, initial_indent="• ", subsequent_indent="  ") for s in (*c.sentences, *c.limits)]
        parts.append("\n".join(bullets))
    return "\n\n".join(p for p in parts if p)


def _wrapped(warning: str) -> str:
    return "\n".join(
        textwrap.fill(line, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in warning.splitlines()
    )


def _moved(base: str, tuned: str, moved: Transitions) -> str:
    """The names of the tasks whose reliability changed."""
    named = {
        "became reliable": moved.became_reliable,
        "lost reliability": moved.lost_reliability,
        "passed for the first time": moved.first_success,
        "lost the last success": moved.lost_last_success,
    }
    lines = [f"- {what} ({len(uids)}): {', '.join(f'`{u}`' for u in uids) or 'none'}" for what, uids in named.items()]
    return f"## Tasks that moved from {base} to {tuned}\n\n" + "\n".join(lines)


def markdown(report: Report, charts: Sequence[str]) -> str:
    """The report as Markdown, with its charts beside it."""
    parts = [f"# Report of {report.run_dir.name}"]
    parts += [
        f"> **{w.splitlines()[0]}**\n" + "\n".join(f"> {x}" for x in w.splitlines()[1:]) for w in report.warnings()
    ]
    for c in report.comparisons:
        if c.sentences:
            parts.append(
                f"## What is supported: {c.base} against {c.tuned}\n\n"
                + "\n".join(f"- {s}" for s in (*c.sentences, *c.limits))
            )
    parts += [t.markdown() for t in report.tables()]
    for c in report.comparisons:
        if c.transitions is not None:
            parts.append(_moved(c.base, c.tuned, c.transitions))
    if charts:
        parts.append("## Charts\n\n" + "\n\n".join(f"![{stem}]({stem}.svg)" for stem in charts))
    conditions = []
    for s in report.summaries:
        rows = "\n".join(f"| {k} | `{v}` |" for k, v in s.conditions.items())
        conditions.append(f"### {s.label} (`{s.fingerprint}`)\n\n| condition | value |\n|---|---|\n{rows}")
    parts.append("## Conditions\n\n" + "\n\n".join(conditions))
    return "\n\n".join(parts) + "\n"
