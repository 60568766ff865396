"""Curate: probe results in, a training pool out, with the reason for every task and proof that it is not the benchmark.

Writes ``RUN_DIR/pool``: `train.yaml` and (for a split) `test.yaml`, selector lists; `difficulty.jsonl`, one line a
task; `contamination.json`, the guard's evidence; `manifest.json` with the hashes of inputs and outputs; `plots/`; and
the marker `DONE`. The same inputs give the same bytes, in whatever order they are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateward.config import Config, config_to_dict
from stateward.difficulty.bands import Bands
from stateward.difficulty.counts import Counts, sorted_sources
from stateward.difficulty.decide import DROP, TEST, TRAIN, Decision
from stateward.difficulty.guard import compare
from stateward.difficulty.inputs import read_counts, read_excluded, read_reference
from stateward.difficulty.near import clusters
from stateward.difficulty.plots import can_plot, pool_plots
from stateward.difficulty.pool_files import Pool, pool_files
from stateward.difficulty.prints import TaskPrint
from stateward.difficulty.publish import publish
from stateward.difficulty.selection import Filters, refuse_unfinished, select
from stateward.difficulty.split import stratified_test
from stateward.errors import UserError
from stateward.outcome import fingerprint
from stateward.store import Stage
from stateward.store.stage import write_json
from stateward.tasks.task import Task

POOL = "pool"
#: Beside the pool's folder: the guard's evidence of the last curation that it refused.
REFUSED = "contamination-refused.json"


def run(
    config: Config,
    inputs: Sequence[Path],
    *,
    tasks: Sequence[Task],
    benchmark: Sequence[Task],
    dry_run: bool = False,
    unfinished: bool = False,
    replace: bool = False,
) -> Pool:
    """Curate the probe results `inputs` (stage or run directories, or JSONL files) into ``config.run_dir/pool``.

    Args:
        tasks: the tasks that may be trained on. benchmark: the held-out ones.
        dry_run: write nothing.
        unfinished: take a probe that has not ended; its open tasks are decided by the trials they have.
        replace: a pool that was made from other inputs may be replaced.

    Raises:
        UserError: bad input (with file and line), an empty pool, an overlap with the benchmark (the evidence is then
            in `REFUSED`), or a pool from other inputs. The pool is untouched in each of these cases.
    """
    counts = read_counts(inputs, config)
    reference = read_reference(config)
    excluded, exclusion_hashes = read_excluded(config)
    filters = Filters(domains={t.uid: t.domain for t in tasks}, excluded=excluded, reference=reference)
    decisions = select(config, counts, filters)
    if not unfinished:
        refuse_unfinished(decisions, counts, config)
    _refuse_empty(decisions, counts)
    taken = {d.uid for d in decisions if d.decision == TRAIN}
    prints = [TaskPrint.of(t) for t in tasks if t.uid in taken]
    held_out = [TaskPrint.of(t) for t in benchmark]
    evidence = compare(prints, held_out, config.curate.near_duplicate_threshold)
    folder = Path(config.run_dir) / POOL
    if not evidence.disjoint:
        where = folder.parent / REFUSED
        if not dry_run:
            write_json(where, evidence.to_json())
        raise evidence.refuse(str(where))
    _split(config, decisions, prints)
    pool = Pool(
        folder=folder,
        bands=Bands.from_config(config.curate.bands),
        counts=counts,
        decisions=decisions,
        evidence=evidence,
        plotted=can_plot(),
    )
    settings = config_to_dict(config.curate)
    settings["reference"].pop("inputs")
    settings.pop("exclude")
    named: dict[str, Any] = {
        "curate": settings,
        "plan": counts.plan,
        "probe": [s.identity() for s in sorted_sources(counts)],
        "reference": [s.identity() for s in sorted_sources(reference)],
        "exclude": sorted(exclusion_hashes.values()),
        "tasks": fingerprint(sorted([t.uid, t.domain] for t in tasks)),
        "benchmark": fingerprint([p.to_json(with_check=True) for p in evidence.benchmark]),
    }
    # Paths are for people. They are no inputs, so that another spelling of a path is not another pool.
    paths = {
        "probe": [s.path for s in sorted_sources(counts)],
        "reference": [s.path for s in sorted_sources(reference)],
        "exclude": sorted(exclusion_hashes),
    }
    if not dry_run:
        if not replace:
            Stage(folder.parent, POOL).is_done(named)
        plots = pool_plots(decisions, pool.bands) if pool.plotted else {}
        pool.changed = publish(folder, pool_files(pool, named, paths, plots))
        (folder.parent / REFUSED).unlink(missing_ok=True)
    return pool


def _split(config: Config, decisions: Sequence[Decision], prints: Sequence[TaskPrint]) -> None:
    """Mark the test side. Tasks that the guard would call the same stay on one side."""
    share = config.curate.test_share
    if not 0 <= share < 1:
        raise UserError(f"curate.test_share is {share}", "it is a share of the selected tasks, in [0, 1)")
    if not share:
        return
    chosen = {d.uid: d for d in decisions if d.decision == TRAIN}
    strata = {uid: (d.domain, d.estimate.band, d.counts.valid) for uid, d in chosen.items()}
    together = clusters(prints, config.curate.near_duplicate_threshold)
    test = stratified_test(strata, share, config.curate.seed, together=together)
    if not test or len(test) == len(chosen):
        raise UserError(
            f"curate.test_share={share} of {len(chosen)} selected tasks leaves one side of the split empty",
            do="change the share, or select more tasks",
        )
    for uid in test:
        chosen[uid].decision = TEST


def _refuse_empty(decisions: Sequence[Decision], counts: Counts) -> None:
    if any(d.decision != DROP for d in decisions):
        return
    why = Counter(_kind(reason) for d in decisions for reason in d.reasons)
    listed = "; ".join(f"{n} × {reason}" for reason, n in why.most_common(5))
    raise UserError(
        f"the pool is empty: none of {len(decisions)} tasks is selected ({counts.rows} trials read)",
        listed or "no task was probed",
        "probe other tasks, keep more bands (curate.bands.keep), or loosen the filters",
    )


def _kind(reason: str) -> str:
    """A reason without its numbers, for counting."""
    return reason.split(": ", 1)[-1]
