"""The values of a report: one run's figures, one comparison. Text, Markdown, HTML and JSON only render them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from stateward.evaluation.comparability import Difference
from stateward.evaluation.comparison import Change, Transitions
from stateward.evaluation.costs import Costs
from stateward.evaluation.metrics import Figure


@dataclass(kw_only=True)
class RunSummary:
    """The figures of one run. If not `scored`, `figures` are those of the trials so far and no score.

    `figures` holds every k from 1 to the number of trials; `void_as_failure` and `domains` the headline k.
    """

    label: str
    model: str
    tasks: int
    trials: int
    successes: int
    valid: int
    reliable: int
    at_least_once: int
    scored: bool
    coverage: list[str]
    figures: dict[str, Figure]
    void_as_failure: dict[str, Figure]
    domains: dict[str, dict[str, Figure]]
    domain_tasks: dict[str, int]
    usage: dict[str, Any]
    finish: dict[str, dict[str, int]]
    voids: dict[str, dict[str, int]]
    tokens: dict[str, dict[str, int]]
    costs: Costs
    conditions: dict[str, Any]
    fingerprint: str
    histogram: list[int]
    bands: dict[str, int]


@dataclass(kw_only=True)
class Comparison:
    """One run against the baseline. If `refused`, it holds no figures and says why.

    `sentences` say what is supported; `limits` what no figure here says.
    """

    base: str
    tuned: str
    differences: list[Difference]
    refused: str = ""
    changes: dict[str, Change] = field(default_factory=dict)
    transitions: Transitions | None = None
    cost_changes: dict[str, float] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SeedGroup:
    """Several training seeds of one method against the baseline.

    `changes`: metric → (mean change with an interval that includes the spread between seeds, p-value).
    `per_seed`: label → metric → change.
    """

    base: str
    method: str
    labels: list[str]
    changes: dict[str, tuple[Figure, float]]
    per_seed: dict[str, dict[str, float]]


def plain(value: Any) -> Any:
    """JSON-ready copy: dataclasses become mappings, NaN becomes null."""
    if isinstance(value, Figure):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
