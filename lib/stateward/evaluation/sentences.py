"""What is and what is not supported, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from stateward.evaluation.comparability import Difference
from stateward.evaluation.comparison import Change
from stateward.evaluation.summary import Comparison, RunSummary


def comparison_sentences(comparison: Comparison, summaries: tuple[RunSummary, RunSummary]) -> Iterator[str]:
    """The findings of a comparison."""
    k = summaries[0].trials
    titles = {"pass@1": "Success rate (pass@1)", "k/k": f"Tasks with {k} of {k}", "any": "Tasks solved at least once"}
    for name, title in titles.items():
        yield _finding(title, comparison.changes[name])
    yield from _sharpening(comparison, k)
    moved = comparison.transitions
    if moved is not None:
        yield (
            f"{_tasks(moved.became_reliable)} became reliable and {len(moved.lost_reliability)} ceased to be;"
            f" {len(moved.first_success)} passed for the first time; {_tasks(moved.lost_last_success)} lost the last"
            " success."
        )
    allowed = [d for d in comparison.differences if d.allowed]
    if allowed:
        yield "The runs differ, as allowed, in " + _named(allowed) + "."
    for s in summaries:
        if s.costs.unpriced:
            yield f"The cost of {s.label} is undefined: the price list lacks {', '.join(s.costs.unpriced)}."


def _named(differences: list[Difference]) -> str:
    """A few differences whole; of many the names of their groups, as each stands under the conditions."""
    if len(differences) <= 3:
        return "; ".join(d.sentence() for d in differences)
    groups = Counter(d.name.partition(".")[0] for d in differences)
    return f"{len(differences)} conditions ({', '.join(f'{name}: {n}' for name, n in groups.items())})"


def limits(tuned: RunSummary, seeds: int) -> Iterator[str]:
    """What no figure of a comparison says."""
    yield "The intervals speak of tasks like these and of new trials; of other kinds of tasks they say nothing."
    if tuned.conditions.get("server.engine") == "chat endpoint":
        return  # an API model has no training seeds
    if seeds == 1:
        yield f"One training run stands behind {tuned.label}: how far another seed would land is not known."
    else:
        yield f"This run is one of {seeds} training seeds; only the table of seeds includes the spread between them."


def _finding(title: str, change: Change) -> str:
    verdict = change.verdict()
    if verdict == "undefined":
        return f"{title}: undefined ({change.difference.reason or 'no interval'})."
    d = change.difference
    text = (
        f"{points(d.value)} (95 % interval {points(d.low).removesuffix(' points')} to {points(d.high)},"
        f" p {p_text(change.p)}),"
        f" {percent(change.base)} → {percent(change.tuned)}"
    )
    if verdict == "unclear":
        return f"{title}: no change is supported; {text}."
    return f"{title} went {verdict}: {text}."


def _sharpening(comparison: Comparison, k: int) -> Iterator[str]:
    """Reliability against reach: whether pass^k gained what pass@k lost."""
    reliable, reach = comparison.changes["k/k"], comparison.changes["any"]
    if math.isnan(reliable.p) or k < 2:
        return
    if reliable.verdict() == "up" and reach.difference.value < 0:
        certain = "" if reach.verdict() == "down" else ", although that loss is within its interval"
        yield (
            f"Sharpening: more tasks pass every time while fewer pass at all{certain}. The policy became surer of what"
            " it could do more than it learned new tasks."
        )
    elif reliable.verdict() == "up" and reach.verdict() == "up":
        yield "Not mere sharpening: more tasks pass every time, and more pass at all."


def _tasks(names: list[str]) -> str:
    return f"{len(names)} task" + ("" if len(names) == 1 else "s")


def percent(value: float) -> str:
    """``51.70 %``; ``undefined`` for NaN."""
    return "undefined" if math.isnan(value) else f"{value * 100:.2f} %"


def points(value: float) -> str:
    """``+9.08 points``."""
    return "undefined" if math.isnan(value) else f"{value * 100:+.2f} points".replace("-", "−")


def change_percent(value: float) -> str:
    """``−7.6 %``."""
    return "undefined" if math.isnan(value) else f"{value * 100:+.1f} %".replace("-", "−")


def dollars(value: float) -> str:
    """``$925.80``, ``$24.36``; three decimals below a dollar."""
    if math.isnan(value):
        return "undefined"
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.3f}"


def p_text(p: float) -> str:
    return "undefined" if math.isnan(p) else "< 0.001" if p < 0.001 else f"= {p:.3f}"
