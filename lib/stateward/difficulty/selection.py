"""Which tasks are selected, and why: bands, missing trials, exclusion lists, the reference model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateward.config import Config, ReferenceConfig, config_to_dict
from stateward.difficulty.bands import Bands
from stateward.difficulty.counts import Counts, TaskCounts
from stateward.difficulty.decide import DROP, Decision, Estimator, decide
from stateward.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What besides its own trials decides about a task.

    Attributes:
        domains: uid → domain of every task that may be selected; None: every probed task may.
        excluded: uid → ``file:line`` of the exclusion list that names it.
        reference: a stronger model's counts; None: no gate.
    """

    domains: Mapping[str, str] | None = None
    excluded: Mapping[str, str] | None = None
    reference: Counts | None = None


def select(config: Config, counts: Counts, filters: Filters) -> list[Decision]:
    """Decisions on all tasks that were probed or may be selected, in order of uid.

    Raises:
        UserError: a setting that cannot work.
    """
    estimator = Estimator(
        bands=Bands.from_config(config.curate.bands),
        rule=str(counts.plan.get("stop_rule", "kept")),
        bounded_error=counts.plan.get("bounded_error", config.probe.bounded_error),
        population=tuple(counts.plan.get("population", config.probe.population)),
    )
    tasks = dict(counts.tasks)
    for uid in filters.domains or {}:
        tasks.setdefault(uid, TaskCounts(uid, planned=int(counts.plan.get("trials", 0))))
    decisions = decide(
        tasks.values(), estimator, min_valid=config.curate.min_valid_trials, domains=filters.domains or {}
    )
    excluded = filters.excluded or {}
    for d in decisions:
        if filters.domains is not None and d.uid not in filters.domains:
            d.drop("not in tasks.train")
        if d.uid in excluded:
            d.drop(f"excluded by {excluded[d.uid]}")
        if filters.reference is not None:
            _gate(d, filters.reference.tasks.get(d.uid), config.curate.reference)
    return decisions


def check_reference(reference: Counts, gate: ReferenceConfig) -> None:
    """Raises UserError if the gate's numbers contradict each other or the reference model's results."""
    if not 1 <= gate.passes <= gate.trials:
        raise UserError(
            f"curate.reference wants {gate.passes} passes of {gate.trials} trials",
            "passes must lie in 1..trials",
        )
    for task in reference.tasks.values():
        if task.valid > gate.trials:
            raise UserError(
                f"the reference model has {task.valid} valid trials of {task.uid};"
                f" curate.reference.trials is {gate.trials}",
                f"{gate.passes} of {task.valid} is easier than {gate.passes} of {gate.trials}",
                f"say curate.reference.trials={max(t.valid for t in reference.tasks.values())}",
            )


def refuse_unfinished(decisions: Sequence[Decision], counts: Counts, config: Config) -> None:
    """Raises UserError if planned trials are neither all valid nor made needless by a rule."""
    waiting = [
        d.uid for d in decisions if d.estimate.basis in ("partial", "none") and d.counts.valid < d.counts.planned
    ]
    if not waiting:
        return
    bands = counts.plan.get("bands")
    if bands is not None and bands != config_to_dict(config.curate.bands):
        raise UserError(
            f"{len(waiting)} tasks are undecided, such as {waiting[0]}: the probe stopped early for other bands",
            f"it was run with keep={bands.get('keep')} and bounds={bands.get('bounds')}",
            "restore curate.bands, probe again for the new ones, or say --unfinished to decide by the trials there are",
        )
    raise UserError(
        f"the probe has not ended: {len(waiting)} tasks are undecided, such as {waiting[0]}",
        "their missing or void trials can still change whether they are kept",
        "run jobs/probe.py again, or say --unfinished to decide them by the trials they have",
    )


def _gate(decision: Decision, found: TaskCounts | None, gate: ReferenceConfig) -> None:
    passes, valid = (found.passes, found.valid) if found else (0, 0)
    decision.reference = passes, valid
    if passes >= gate.passes:
        if decision.decision != DROP:
            decision.reasons.append(f"the reference model solved it {passes} of {valid} times")
        return
    missing = gate.trials - valid
    decision.drop(
        f"the reference model solved it {passes} of {valid} times; {gate.passes} of {gate.trials} are wanted"
        + (f" ({missing} of its trials are missing or void)" if missing else "")
    )
