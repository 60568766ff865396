"""Compute a run's summary and a comparison."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from stateward.errors import UserError
from stateward.evaluation.comparability import conditions, conditions_fingerprint, differences, require_comparable
from stateward.evaluation.comparison import changes, transitions
from stateward.evaluation.costs import PriceList, party_models, run_costs
from stateward.evaluation.counts import Counts
from stateward.evaluation.metrics import headline_ks, task_table
from stateward.evaluation.run import Run, domain_figures, success_figures
from stateward.evaluation.seeds import seed_level
from stateward.evaluation.sentences import comparison_sentences, limits
from stateward.evaluation.summary import Comparison, RunSummary, SeedGroup
from stateward.evaluation.usage import finish_reasons, token_totals, usage_figures, void_kinds


def summarize(run: Run, prices: PriceList, *, resamples: int, seed: int) -> RunSummary:
    """Every figure of one run."""
    counts = run.counts
    always = (counts.valid == counts.trials) & (counts.passes == counts.trials)
    successes, reliable = int(counts.passes.sum()), int(always.sum())
    tokens = token_totals(run.records.columns, run.records.dropped)
    models = party_models(run.manifest.get("config", {}), run.plan.model)
    figures = success_figures(counts, resamples=resamples, seed=seed, ks=range(1, counts.trials + 1))
    return RunSummary(
        label=run.label,
        model=run.plan.model,
        tasks=len(counts),
        trials=counts.trials,
        successes=successes,
        valid=int(counts.valid.sum()),
        reliable=reliable,
        at_least_once=int((counts.passes > 0).sum()),
        scored=run.scored,
        coverage=list(run.coverage.sentences()),
        figures=figures,
        void_as_failure=success_figures(counts.void_as_failure(), resamples=resamples, seed=seed)
        if counts.void.any() or counts.late.any()
        else figures,
        domains=domain_figures(counts, resamples=resamples, seed=seed),
        domain_tasks={d: counts.domains.count(d) for d in sorted(set(counts.domains))},
        usage=usage_figures(run),
        finish=finish_reasons(run),
        voids=void_kinds(run),
        tokens=tokens,
        costs=run_costs(tokens, models, prices, successes=successes, reliable=reliable),
        conditions=conditions(run.plan, prices.identity),
        fingerprint=conditions_fingerprint(run.plan, prices.identity),
        histogram=np.bincount(counts.passes, minlength=counts.trials + 1).tolist(),
        bands=_bands(run),
    )


def compare(
    base: Run,
    tuned: Run,
    summaries: tuple[RunSummary, RunSummary],
    prices: PriceList,
    *,
    allow: Sequence[str],
    resamples: int,
    seed: int,
    seeds: int,
) -> Comparison:
    """Base against tuned, or why not. `seeds` is the number of training seeds that the tuned side stands for."""
    found = differences(base.plan, tuned.plan, prices.identity, allow)
    comparison = Comparison(base=base.label, tuned=tuned.label, differences=found)
    try:
        for run in (base, tuned):
            if not run.scored:
                raise UserError(
                    f"run {run.label} is not complete", "; ".join(run.coverage.sentences()), "run what is missing"
                )
        require_comparable(base.plan, tuned.plan, found)
        if set(base.plan.uids) != set(tuned.plan.uids) or base.plan.trials != tuned.plan.trials:
            raise UserError(
                f"runs {base.label} and {tuned.label} have other tasks or another number of trials",
                "a paired comparison needs the same tasks, each with the same number of trials",
                "evaluate both on one list; no --allow-difference helps here",
            )
    except UserError as error:
        comparison.refused = str(error)
        return comparison
    after = _in_order_of(base, tuned)
    comparison.changes = changes(base.counts, after, resamples=resamples, seed=seed)
    comparison.transitions = transitions(base.counts, after)
    a, b = (s.costs for s in summaries)
    for name in ("total", "per_success", "per_reliable"):
        old, new = getattr(a, name), getattr(b, name)
        comparison.cost_changes[name] = new / old - 1 if old else math.nan
    comparison.sentences = list(comparison_sentences(comparison, summaries))
    comparison.limits = list(limits(summaries[1], seeds))
    return comparison


def compare_seeds(base: Run, group: Sequence[Run], *, resamples: int, seed: int) -> SeedGroup:
    """The training seeds of one method against the baseline; all are scored and comparable, over the same tasks."""
    ks = headline_ks(base.counts.trials)
    before = task_table(base.counts, ks)
    tables = [task_table(_in_order_of(base, run), ks).values - before.values for run in group]
    found = seed_level(np.stack(tables), resamples=resamples, seed=seed)
    return SeedGroup(
        base=base.label,
        method=group_of(group[0].label),
        labels=[run.label for run in group],
        changes=dict(zip(before.names, found, strict=True)),
        per_seed={
            run.label: dict(zip(before.names, table.mean(axis=0).tolist(), strict=True))
            for run, table in zip(group, tables, strict=True)
        },
    )


def _in_order_of(base: Run, run: Run) -> Counts:
    at = {uid: i for i, uid in enumerate(run.plan.uids)}
    return run.counts.take(np.array([at[uid] for uid in base.plan.uids], np.int64))


def group_of(label: str) -> str:
    """Runs whose labels differ only in a last part ``-seedN`` or ``-sN`` are training seeds of one method."""
    return re.sub(r"[-_](seed|s)\d+$", "", label)


def _bands(run: Run) -> dict[str, int]:
    """Band → tasks, by the observed share of passes, in the campaign's bands (empty without them)."""
    bands = run.manifest.get("config", {}).get("curate", {}).get("bands", {})
    names, bounds = bands.get("names", []), bands.get("bounds", [])
    if not names:
        return {}
    tried = run.counts.valid > 0
    # As in probing: Jeffreys posterior mean, so that 0 of 20 is not a rate of exactly 0.
    rate = (run.counts.passes[tried] + 0.5) / (run.counts.valid[tried] + 1.0)
    at = np.minimum(np.searchsorted(np.array(bounds), rate, side="right"), len(names) - 1)
    return dict(zip(names, np.bincount(at, minlength=len(names)).tolist(), strict=True))


def per_task(run: Run) -> list[dict[str, Any]]:
    """One row a task: counts, and its metrics at the headline k; JSON-ready."""
    c = run.counts
    table = task_table(c, headline_ks(c.trials))
    values = np.where(np.isnan(table.values), None, table.values).tolist()  # type: ignore[call-overload]
    return [
        {
            "uid": c.uids[i],
            "domain": c.domains[i],
            "passes": int(c.passes[i]),
            "valid": int(c.valid[i]),
            "void": int(c.void[i]),
            "metrics": dict(zip(table.names, values[i], strict=True)),
        }
        for i in range(len(c))
    ]
