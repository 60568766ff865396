"""What the episodes took: turns, calls, tokens, seconds, by outcome; why they ended; what was void."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from stateward.evaluation.counts import planned_rows
from stateward.evaluation.run import Run
from stateward.store.shard import PARTIES, PHASES, TOKEN_KINDS, Column

_OUTCOMES = ("pass", "fail")


def usage_figures(run: Run) -> dict[str, Any]:
    """Means per valid trial, over all and by outcome, as ``{quantity: {all, pass, fail}}``; None where there is none.

    Quantities: turns, tool_calls, tool_errors, seconds_PHASE (s), PARTY_KIND (tokens; `requests` counts).
    """
    rows, _ = planned_rows(run.records.columns, run.plan)
    c = {name: column[rows] for name, column in run.records.columns.items()}
    valid = c["outcome"] != b"void"
    masks = {"all": valid, **{o: c["outcome"] == o.encode() for o in _OUTCOMES}}
    quantities = [
        *("turns", "tool_calls", "tool_errors"),
        *(f"seconds_{phase}" for phase in PHASES),
        *(f"{party}_{kind}" for party in PARTIES for kind in TOKEN_KINDS),
    ]
    return {q: {who: _mean(c[q][mask]) for who, mask in masks.items()} for q in quantities}


def finish_reasons(run: Run) -> dict[str, dict[str, int]]:
    """Why the valid trials' conversations ended: reason → {pass, fail}."""
    rows, _ = planned_rows(run.records.columns, run.plan)
    outcome, finish = (run.records.columns[n][rows] for n in ("outcome", "finish"))
    out: dict[str, dict[str, int]] = {}
    for reason in np.unique(finish[outcome != b"void"]):
        out[reason.decode() or "unknown"] = {
            o: int(((finish == reason) & (outcome == o.encode())).sum()) for o in _OUTCOMES
        }
    return out


def void_kinds(run: Run) -> dict[str, dict[str, int]]:
    """Kinds of system faults: kind → {attempts, standing}. `attempts` counts every void attempt, also those that were
    run again; `standing` the trials whose last attempt is void."""
    attempts: Counter[str] = Counter()
    standing: Counter[str] = Counter()
    for columns, stands in ((run.records.columns, True), (run.records.dropped, False)):
        kinds = [k.decode() for k in columns["fault_kind"][columns["outcome"] == b"void"].tolist()]
        attempts.update(kinds)
        if stands:
            standing.update(kinds)
    return {kind: {"attempts": n, "standing": standing[kind]} for kind, n in sorted(attempts.items())}


def token_totals(*columns: dict[str, Column]) -> dict[str, dict[str, int]]:
    """Tokens of every attempt in these columns, voids and repeats included, because they were paid for too."""
    return {
        party: {kind: int(sum(int(c[f"{party}_{kind}"].sum()) for c in columns)) for kind in TOKEN_KINDS}
        for party in PARTIES
    }


def _mean(values: Column) -> float | None:
    if not len(values):
        return None
    mean = float(values.mean())
    return None if math.isnan(mean) else mean
