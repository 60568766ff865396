"""The tally as Markdown: what was hit in which kind of campaign, when, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from faults import FAULTS

_WHEN = {
    "": "outside the training job",
    "boot": "while its ranks and its Ray start or end",
    "start": "between its driver's start and the driver's first step",
    "steps": "while its steps run",
}


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of faults and moments, columns of kinds; below it every hit of a campaign with Ray, and every problem."""
    kinds = sorted({row["kind"] for row in rows})
    faults = Counter((row["kind"], hit["fault"]) for row in rows for hit in row["hits"])
    stages = Counter((row["kind"], hit["stage"]) for row in rows for hit in row["hits"])

    def line(title: str, value: Callable[[str], int]) -> str:
        numbers = [value(kind) for kind in kinds]
        return f"| {title} | {' | '.join(map(str, numbers))} | {sum(numbers)} |"

    def total(of: Callable[[dict[str, Any]], int]) -> Callable[[str], int]:
        return lambda kind: sum(of(row) for row in rows if row["kind"] == kind)

    lines = [f"| what was hit | {' | '.join(kinds)} | all |", "|---" + "|---:" * (len(kinds) + 1) + "|"]
    lines += [line(fault.replace("_", " "), lambda kind, fault=fault: faults[kind, fault]) for fault in FAULTS]  # type: ignore[misc]
    lines.append(line("**rounds**", total(lambda row: len(row["hits"]))))
    lines += [line(f"of them {when}", lambda kind, stage=stage: stages[kind, stage]) for stage, when in _WHEN.items()]  # type: ignore[misc]
    lines.append(line("campaigns", total(lambda row: 1)))
    lines.append(line("calls of the pipeline", total(lambda row: row["calls"])))
    lines.append(line("seconds", total(lambda row: row["seconds"])))
    lines.append(line("trials lost, run twice or left void; steps missed", total(lambda row: len(row["problems"]))))
    loads = [load for row in rows for load in row["load"]]
    lines += ["", f"load {min(loads)} to {max(loads)}"]
    for row in rows:
        if row["kind"] != "plain":
            lines += [f"{row['kind']}, {hit['stage']}: {hit['what']}" for hit in row["hits"]]
    return lines + [problem for row in rows for problem in row["problems"]]
