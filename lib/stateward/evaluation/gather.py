"""Read a campaign's runs and compute everything that its report says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.errors import UserError, nearest
from stateward.evaluation.assess import compare, compare_seeds, group_of, per_task, summarize
from stateward.evaluation.campaign_costs import StageCost, campaign_costs
from stateward.evaluation.costs import PriceList, load_prices, party_models
from stateward.evaluation.run import Run, load_runs
from stateward.evaluation.summary import Comparison, RunSummary, SeedGroup, plain
from stateward.evaluation.tables import (
    TextTable,
    changes_table,
    costs_table,
    domains_table,
    finish_table,
    headline,
    metrics_table,
    partial_table,
    prices_table,
    runs_table,
    seeds_table,
    usage_table,
    void_table,
)
from stateward.evaluation.training_log import TrainingLog, read_training_logs


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report may be told.

    Attributes:
        baseline: label of the run that the others are compared with; empty: ``base``, or no comparison without it.
        prices: the price list.
        allow: conditions that may differ between compared runs.
        accept_duplicates: score a run although trials of it have two valid records.
        void_as_failure: score by the other system-error policy: a trial that was ever void has failed.
        resamples, seed: of the bootstrap and the test.
    """

    prices: Path
    baseline: str = ""
    allow: Sequence[str] = ()
    accept_duplicates: bool = False
    void_as_failure: bool = False
    resamples: int = 10_000
    seed: int = 42


@dataclass(kw_only=True)
class Report:
    """A report in memory. `complete` says that every run is scored and no comparison was refused."""

    run_dir: Path
    runs: list[Run]
    summaries: list[RunSummary]
    comparisons: list[Comparison]
    seed_groups: list[SeedGroup]
    stages: list[StageCost]
    training: dict[str, TrainingLog]
    prices: PriceList
    generated: float = field(default_factory=time.time)

    @property
    def models(self) -> list[str]:
        """Names of the models that tokens were spent on, as the price list is asked for them."""
        asked = [party_models(run.manifest.get("config", {}), run.plan.model) for run in self.runs]
        return sorted({model for parties in asked for model in parties.values() if model})

    @property
    def complete(self) -> bool:
        return all(s.scored for s in self.summaries) and not any(c.refused for c in self.comparisons)

    def tables(self) -> Iterator[TextTable]:
        """The tables of a report, in order."""
        by_label = {s.label: s for s in self.summaries}
        board = len(self.summaries) > 2
        if board:
            yield runs_table(self.summaries)
        for c in self.comparisons:
            if not c.refused:
                yield headline(by_label[c.base], by_label[c.tuned], c)
        if not board:
            yield runs_table(self.summaries)
        if not all(s.scored for s in self.summaries):
            yield partial_table(self.summaries)
        if any(s.scored for s in self.summaries):
            yield metrics_table(self.summaries)
            yield domains_table(self.summaries)
        for c in self.comparisons:
            if not c.refused:
                yield changes_table(c)
        for group in self.seed_groups:
            yield seeds_table(group)
        yield finish_table(self.summaries)
        yield usage_table(self.summaries)
        yield void_table(self.summaries)
        yield costs_table(self.stages)
        prices = prices_table(self.prices, self.models)
        if prices.rows:
            yield prices

    def warnings(self) -> Iterator[str]:
        """What keeps a figure from being one: partial runs and refused comparisons."""
        for s in self.summaries:
            if not s.scored:
                yield f"PARTIAL: {s.label} is not scored: " + "; ".join(s.coverage)
        for c in self.comparisons:
            if c.refused:
                yield f"NOT COMPARED: {c.refused}"

    def to_json(self) -> dict[str, Any]:
        """Every figure. A run that is not scored has its figures under ``so_far`` and lists the trials that it owes."""
        runs = {}
        for s, run in zip(self.summaries, self.runs, strict=True):
            row = {**plain(s), "per_task": per_task(run)}
            if not s.scored:
                row["owed"] = [f"{t.uid}#{t.index}" for t in run.coverage.owed]
                row["so_far"] = {name: row.pop(name) for name in ("figures", "void_as_failure", "domains")}
            runs[s.label] = row
        return {
            "run_dir": str(self.run_dir),
            "generated": self.generated,
            "complete": self.complete,
            "runs": runs,
            "comparisons": plain(self.comparisons),
            "seed_groups": plain(self.seed_groups),
            "stages": plain(self.stages),
            "training": {name: log.rows for name, log in self.training.items()},
        }


def compute(run_dir: Path, options: ReportOptions) -> Report:
    """Read the runs and compute every figure; writes nothing.

    Raises:
        UserError: no runs, an unknown baseline, a price list that cannot be read.
    """
    prices = load_prices(options.prices)
    runs = load_runs(run_dir, accept_duplicates=options.accept_duplicates, void_as_failure=options.void_as_failure)
    labels = [run.label for run in runs]
    baseline = options.baseline or ("base" if "base" in labels else "")
    if baseline and baseline not in labels:
        raise UserError(f"no run is called {baseline!r}", do=nearest(baseline, labels))
    runs.sort(key=lambda run: (run.label != baseline, run.label))
    summaries = [summarize(run, prices, resamples=options.resamples, seed=options.seed) for run in runs]
    comparisons = []
    if baseline:
        for i in range(1, len(runs)):
            seeds = sum(group_of(label) == group_of(runs[i].label) for label in labels)
            comparisons.append(
                compare(
                    runs[0],
                    runs[i],
                    (summaries[0], summaries[i]),
                    prices,
                    allow=options.allow,
                    resamples=options.resamples,
                    seed=options.seed,
                    seeds=seeds,
                )
            )
    return Report(
        run_dir=run_dir,
        runs=runs,
        summaries=summaries,
        comparisons=comparisons,
        seed_groups=_seed_groups(runs, comparisons, options),
        stages=campaign_costs(run_dir, prices),
        training=read_training_logs(run_dir),
        prices=prices,
    )


def _seed_groups(runs: list[Run], comparisons: list[Comparison], options: ReportOptions) -> list[SeedGroup]:
    by_label = {run.label: run for run in runs}
    groups: dict[str, list[Run]] = {}
    for c in comparisons:
        if not c.refused:
            groups.setdefault(group_of(c.tuned), []).append(by_label[c.tuned])
    return [
        compare_seeds(runs[0], group, resamples=options.resamples, seed=options.seed)
        for group in groups.values()
        if len(group) > 1
    ]
