"""The report's tables as rows of text, and their rendering for an 80-column terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateward.evaluation.campaign_costs import StageCost
from stateward.evaluation.costs import PriceList
from stateward.evaluation.metrics import Figure, headline_ks
from stateward.evaluation.sentences import change_percent, dollars, p_text, percent, points
from stateward.evaluation.summary import Comparison, RunSummary, SeedGroup


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table: the first column is text, the others are figures. `section` of the page it stands in: ``success``,
    ``effort`` or ``costs``; empty where the page shows it in another form."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    section: str = ""

    def terminal(self, width: int = 80) -> str:
        """Aligned columns in lines of at most `width`: figures that do not fit beside each other go into a further
        block under the same first column, which is cut with … if it must be."""
        cells = [list(self.header), *(list(r) for r in self.rows)]
        widths = [max(len(r[j]) for r in cells) for j in range(len(self.header))]
        first = min(widths[0], max(12, width - max(widths[1:], default=0) - 2))
        blocks: list[list[int]] = [[]]
        for j in range(1, len(widths)):
            if blocks[-1] and first + sum(2 + widths[i] for i in (*blocks[-1], j)) > width:
                blocks.append([])
            blocks[-1].append(j)
        lines = [self.title]
        for n, block in enumerate(blocks):
            for row in cells:
                name = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
                lines.append("  ".join([name.ljust(first), *(row[j].rjust(widths[j]) for j in block)]).rstrip())
                if row is cells[0]:
                    lines.append("─" * (first + sum(2 + widths[j] for j in block)))
            if n < len(blocks) - 1:
                lines.append("")
        return "\n".join(lines)

    def markdown(self) -> str:
        """A Markdown table under a heading."""
        line = "| " + " | ".join(self.header) + " |"
        rule = "|---|" + "---:|" * (len(self.header) - 1)
        body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return "\n".join([f"## {self.title}", "", line, rule, *body])


def headline(base: RunSummary, tuned: RunSummary, comparison: Comparison) -> TextTable:
    """Base against tuned, as the published table has it: success, reliability, reach, cost."""
    n, k = base.tasks * base.trials, base.trials
    rows = [
        ["trials passed", f"{base.successes:,}", f"{tuned.successes:,}", f"of {n:,}", ""],
        ["pass@1", *_pair(base, tuned, "pass@1"), *_change(comparison, "pass@1")],
        [f"tasks {k}/{k}", str(base.reliable), str(tuned.reliable), f"of {base.tasks}", ""],
        [f"share {k}/{k}", *_pair(base, tuned, "k/k"), *_change(comparison, "k/k")],
        ["tasks ≥ 1", str(base.at_least_once), str(tuned.at_least_once), f"of {base.tasks}", ""],
        ["share ≥ 1", *_pair(base, tuned, "any"), *_change(comparison, "any")],
    ]
    for title, name in (("cost", "total"), ("cost per success", "per_success"), (f"cost per {k}/{k}", "per_reliable")):
        old, new = getattr(base.costs, name), getattr(tuned.costs, name)
        rows.append([title, dollars(old), dollars(new), change_percent(comparison.cost_changes[name]), ""])
    header = ["", base.label, tuned.label, "change", "95 % interval"]
    return TextTable(title=f"{base.label} against {tuned.label}", header=header, rows=rows)


def _change(comparison: Comparison, name: str) -> list[str]:
    d = comparison.changes[name].difference
    return [points(d.value), span(d)]


def span(figure: Figure) -> str:
    """``+6.31 … +11.85``, in points."""
    if figure.low != figure.low:
        return "–"
    return f"{points(figure.low)} … {points(figure.high)}".replace(" points", "")


def changes_table(comparison: Comparison) -> TextTable:
    """Every metric's change with its interval and its test."""
    rows = [
        [
            name,
            percent(c.base),
            percent(c.tuned),
            points(c.difference.value),
            span(c.difference),
            p_text(c.p).removeprefix("= "),
        ]
        for name, c in comparison.changes.items()
    ]
    return TextTable(
        title="Paired changes (95 % intervals over tasks; sign-flip test)",
        header=["metric", comparison.base, comparison.tuned, "change", "interval", "p"],
        rows=rows,
        section="success",
    )


def ranked(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Best first by pass@1; runs that are not scored last."""
    return sorted(summaries, key=lambda s: (s.scored, s.figures["pass@1"].value), reverse=True)


def runs_title(summaries: Sequence[RunSummary]) -> str:
    return "Leaderboard" if len(summaries) > 2 else "Runs"


def runs_table(summaries: Sequence[RunSummary]) -> TextTable:
    """One row a run, best first: the leaderboard. A run that is not complete is marked and has no figures.

    The last column begins the fingerprint of the run's conditions: rows that share it may be compared.
    """
    rows = []
    for s in ranked(summaries):
        name, figures = f"{s.label} (partial)", ["not scored", "not scored"]
        if s.scored:
            name, figures = s.label, [with_interval(s.figures["pass@1"]), with_interval(s.figures["k/k"])]
        rows.append([name, *figures, dollars(s.costs.total), s.fingerprint[:6]])
    trials = {s.trials for s in summaries}
    k = trials.pop() if len(trials) == 1 else "k"
    header = ["run", "pass@1 [95 %]", f"{k}/{k} [95 %]", "cost", "conditions"]
    return TextTable(title=runs_title(summaries), header=header, rows=rows)


def partial_table(summaries: Sequence[RunSummary]) -> TextTable:
    """What runs that are not complete have so far; a look, no score."""
    rows = []
    for s in summaries:
        if not s.scored:
            share = percent(s.successes / s.valid) if s.valid else "–"
            rows.append([s.label, f"{s.successes:,}", f"{s.valid:,}", f"{s.tasks * s.trials:,}", share])
    header = ["PARTIAL, NO SCORE", "passed", "valid", "planned", "of valid"]
    return TextTable(title="Partial runs so far", header=header, rows=rows, section="success")


def domains_table(summaries: Sequence[RunSummary]) -> TextTable:
    """pass@1 and k/k per domain for each scored run."""
    scored = [s for s in summaries if s.scored]
    header = ["domain", "tasks"]
    for s in scored:
        header += [f"{s.label} pass@1", f"{s.label} {s.trials}/{s.trials}"]
    domains = sorted({d for s in scored for d in s.domains})
    rows = []
    for domain in domains:
        tasks = next(s.domain_tasks[domain] for s in scored if domain in s.domain_tasks)
        row = [domain or "(none)", str(tasks)]
        for s in scored:
            figures = s.domains.get(domain)
            row += [percent(figures["pass@1"].value), percent(figures["k/k"].value)] if figures else ["–", "–"]
        rows.append(row)
    return TextTable(title="Domains", header=header, rows=rows, section="success")


def metrics_table(summaries: Sequence[RunSummary]) -> TextTable:
    """Every headline metric of every scored run with its interval; both system-error policies."""
    scored = [s for s in summaries if s.scored]
    if not scored:
        return TextTable(title="Metrics", header=["metric"], rows=[])
    ks = headline_ks(scored[0].trials)
    names = ["pass@1", "k/k", "any"]
    names += [f"pass@{k}" for k in ks if k > 1] + [f"pass^{k}" for k in ks if k > 1]
    names += [f"pass^{k} plug-in" for k in ks if k > 1]
    rows = [[n, *(with_interval(s.figures[n]) if n in s.figures else "–" for s in scored)] for n in names]
    rows.append(["pass@1, void = failure", *(with_interval(s.void_as_failure["pass@1"]) for s in scored)])
    return TextTable(title="Metrics", header=["metric", *(s.label for s in scored)], rows=rows, section="success")


def usage_table(summaries: Sequence[RunSummary]) -> TextTable:
    """Means per trial: all, and of passes and failures."""
    wanted = [
        ("turns", "turns"),
        ("tool_calls", "tool calls"),
        ("tool_errors", "refused tool calls"),
        ("policy_prompt", "prompt tokens"),
        ("policy_cached", "cached tokens"),
        ("policy_completion", "completion tokens"),
        ("policy_reasoning", "reasoning tokens"),
        ("seconds_total", "seconds"),
    ]
    header = ["mean per trial"]
    for s in summaries:
        header += [s.label, "pass", "fail"]
    rows = []
    for name, title in wanted:
        row = [title]
        for s in summaries:
            row += [_short(s.usage[name][who]) for who in ("all", "pass", "fail")]
        rows.append(row)
    return TextTable(title="Usage", header=header, rows=rows, section="effort")


def void_table(summaries: Sequence[RunSummary]) -> TextTable:
    """System faults: every void attempt, and the trials that are void still."""
    kinds = sorted({kind for s in summaries for kind in s.voids})
    header = ["system fault"]
    for s in summaries:
        header += [f"{s.label} attempts", "standing"]
    rows = []
    for kind in kinds:
        row = [kind]
        for s in summaries:
            row += [str(s.voids.get(kind, {}).get(k, 0)) for k in ("attempts", "standing")]
        rows.append(row)
    return TextTable(
        title="Voids", header=header, rows=rows or [["none", *["0"] * (len(header) - 1)]], section="effort"
    )


def seeds_table(group: SeedGroup) -> TextTable:
    """The mean change over training seeds, its interval and test, and the range of the single seeds."""
    rows = []
    for name, (figure, p) in group.changes.items():
        single = [group.per_seed[label][name] for label in group.labels]
        rows.append(
            [
                name,
                points(figure.value),
                span(figure),
                p_text(p).removeprefix("= "),
                f"{points(min(single))} … {points(max(single))}".replace(" points", ""),
            ]
        )
    title = f"{group.method}: {len(group.labels)} training seeds against {group.base} (intervals over tasks and seeds)"
    return TextTable(
        title=title, header=["metric", "mean change", "interval", "p", "seeds"], rows=rows, section="success"
    )


def costs_table(stages: Sequence[StageCost]) -> TextTable:
    """Each stage's attempts, tokens in dollars, GPU-hours and their dollars."""
    rows = []
    for s in stages:
        tokens = "no price" if s.tokens.unpriced else dollars(s.tokens.total)
        known = s.gpu.hours == s.gpu.hours
        hours = f"{s.gpu.hours:,.1f}" if known else "–"
        gpu = "–" if not known else "no price" if s.gpu.dollars != s.gpu.dollars else dollars(s.gpu.dollars)
        rows.append([s.name, f"{s.attempts:,}", tokens, hours, gpu])
    return TextTable(
        title="Campaign costs", header=["stage", "episodes", "tokens", "GPU-hours", "GPUs"], rows=rows, section="costs"
    )


def prices_table(prices: PriceList, used: Sequence[str]) -> TextTable:
    """The prices behind the costs: of the models in `used`, where they are from and from when."""
    rows = []
    for model in used:
        price = prices.price(model)
        if price is not None:
            figures = [f"${v:,.3f}".removesuffix("0") for v in (price.input, price.cached, price.output)]
            rows.append([model.rstrip("/").rpartition("/")[2], *figures, price.date or "no date", price.source or "–"])
    header = ["dollars per million tokens", "input", "cached", "output", "as of", "source"]
    return TextTable(title="Prices", header=header, rows=rows, section="costs")


def finish_table(summaries: Sequence[RunSummary]) -> TextTable:
    """Why conversations ended, by outcome."""
    reasons = sorted({reason for s in summaries for reason in s.finish})
    header = ["conversation ended by"]
    for s in summaries:
        header += [f"{s.label} pass", "fail"]
    rows = []
    for reason in reasons:
        row = [reason]
        for s in summaries:
            row += [f"{s.finish.get(reason, {}).get(o, 0):,}" for o in ("pass", "fail")]
        rows.append(row)
    return TextTable(title="Finish reasons", header=header, rows=rows, section="effort")


def with_interval(figure: Figure) -> str:
    """``51.70 % [48.1, 55.3]``."""
    if figure.value != figure.value:
        return "undefined"
    if figure.low != figure.low:
        return percent(figure.value)
    return f"{percent(figure.value)} [{figure.low * 100:.1f}, {figure.high * 100:.1f}]"


def _pair(base: RunSummary, tuned: RunSummary, name: str) -> tuple[str, str]:
    return percent(base.figures[name].value), percent(tuned.figures[name].value)


def _short(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
