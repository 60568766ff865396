"""One evaluated run: its plan, its records, what covers what, and its success figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stateward.errors import UserError
from stateward.evaluation.counts import Counts, counts
from stateward.evaluation.coverage import Coverage, coverage
from stateward.evaluation.intervals import bootstrap_means, intervals
from stateward.evaluation.metrics import Figure, headline_ks, mean_figure, task_table
from stateward.evaluation.plan import Plan, plan_of_stage
from stateward.store import Records, Stage, read_records


@dataclass(kw_only=True)
class Run:
    """An evaluation stage as read from disk."""

    plan: Plan
    records: Records
    coverage: Coverage
    counts: Counts
    path: Path
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.plan.label

    @property
    def scored(self) -> bool:
        """Complete runs are scored; a partial one can be looked at."""
        return self.coverage.complete


def load_run(stage_dir: Path, *, accept_duplicates: bool = False, void_as_failure: bool = False) -> Run:
    """Read one evaluation, for instance ``RUN_DIR/eval/base``. Bodies of the records are left on disk.

    Raises:
        UserError: the stage was never begun, or a file of it is damaged.
    """
    plan = plan_of_stage(stage_dir)
    try:
        records = read_records(stage_dir)
    except OSError as error:
        raise UserError(
            f"{stage_dir} cannot be read", str(error), "move the damaged file away, then run jobs/evaluate.py --repair"
        ) from error
    if void_as_failure:
        plan = replace(plan, facts={**plan.facts, "void_policy": "void is a failure"})
    found = counts(records, plan)
    return Run(
        plan=plan,
        records=records,
        coverage=coverage(records, plan, accept_duplicates=accept_duplicates, void_as_failure=void_as_failure),
        counts=found.void_as_failure() if void_as_failure else found,
        path=stage_dir,
        manifest=Stage(stage_dir.parent, stage_dir.name).manifest,
    )


def load_runs(run_dir: Path, *, accept_duplicates: bool = False, void_as_failure: bool = False) -> list[Run]:
    """All evaluations of a run directory, by label.

    Raises:
        UserError: there are none.
    """
    folders = sorted(p for p in (run_dir / "eval").glob("*") if (p / "manifest.json").is_file())
    if not folders:
        raise UserError(
            f"{run_dir}/eval holds no evaluation",
            "a report needs at least one run",
            "run jobs/evaluate.py first, or import results with jobs/report.py --import LABEL=FILE",
        )
    return [load_run(f, accept_duplicates=accept_duplicates, void_as_failure=void_as_failure) for f in folders]


def success_figures(
    counts: Counts, *, resamples: int, seed: int, ks: Sequence[int] | None = None, with_intervals: bool = True
) -> dict[str, Figure]:
    """Name → figure of the success metrics over the tasks in `counts`, with 95 % intervals where they are defined."""
    table = task_table(counts, headline_ks(counts.trials) if ks is None else ks)
    figures = {name: mean_figure(table.column(name), name, counts.trials) for name in table.names}
    defined = [name for name, figure in figures.items() if not math.isnan(figure.value)]
    if not (defined and with_intervals):
        return figures
    values = np.stack([table.column(name) for name in defined], axis=1)
    means = bootstrap_means(values, resamples, seed)
    for name, interval in zip(defined, intervals(values, means, lowest=0.0, highest=1.0), strict=True):
        old = figures[name]
        figures[name] = Figure(value=old.value, low=interval.low, high=interval.high, over=old.over)
    return figures


def domain_figures(counts: Counts, *, resamples: int, seed: int) -> dict[str, dict[str, Figure]]:
    """Domain → success figures over its tasks."""
    domains = np.array(counts.domains)
    return {
        str(domain): success_figures(counts.take(np.flatnonzero(domains == domain)), resamples=resamples, seed=seed)
        for domain in sorted(set(counts.domains))
    }


def curve(figures: dict[str, Figure], kind: str, trials: int) -> list[Figure]:
    """The figures ``pass@k`` or ``pass^k`` (`kind` ``@`` or ``^``) for k = 1 … trials, of figures made with all k."""
    return [figures["pass@1"] if k == 1 else figures[f"pass{kind}{k}"] for k in range(1, trials + 1)]
