"""From counts to decisions: one `Decision` a task, with the posterior behind it and every reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stateward.difficulty.bands import Bands
from stateward.difficulty.counts import TaskCounts
from stateward.difficulty.posterior import band_mass, heaviest, interval, posterior
from stateward.difficulty.stopping import MAX_TRIALS, StopRule, build_rule

TRAIN, TEST, DROP = "train", "test", "drop"
LEVEL = 0.95  # of the credible interval


@dataclass(frozen=True)
class Estimate:
    """What the counts (k, m of n planned) say; shared by all tasks with these counts.

    Attributes:
        band: with most posterior mass, of the bands that the task can still end in at n trials.
        basis: ``full`` (all planned trials), ``certain`` (no outcome of the rest can change the decision), ``bounded``
            (the bounded-error rule stopped), ``partial`` (trials are missing or void) or ``none`` (no valid trial).
        keep: whether the band rule keeps it.
    """

    alpha: float
    beta: float
    band: str
    mass: dict[str, float]
    low: float
    high: float
    basis: str
    keep: bool


@dataclass(kw_only=True)
class Decision:
    """A line of difficulty.jsonl. `decision` is ``train``, ``test`` or ``drop``; `reasons` are sentences."""

    counts: TaskCounts
    domain: str
    estimate: Estimate
    decision: str
    reasons: list[str] = field(default_factory=list)
    reference: tuple[int, int] | None = None

    @property
    def uid(self) -> str:
        return self.counts.uid

    def drop(self, reason: str) -> None:
        """Leave the task out, for a reason that may come on top of others."""
        if self.decision != DROP:
            self.decision, self.reasons = DROP, []
        self.reasons.append(reason)

    def to_json(self) -> dict[str, Any]:
        """The line as a JSON-ready dict; its keys are described in docs/difficulty.md."""
        c, e = self.counts, self.estimate
        row: dict[str, Any] = {
            "uid": c.uid,
            "domain": self.domain,
            "passes": c.passes,
            "valid": c.valid,
            "voids": c.voids,
            "planned": c.planned,
            "runs": c.runs,
            "rate": round(c.passes / c.valid, 6) if c.valid else None,
            "posterior": [e.alpha, e.beta],
            "band": e.band,
            "mass": e.mass,
            "interval": [e.low, e.high],
            "basis": e.basis,
            "decision": self.decision,
            "reasons": self.reasons,
        }
        if self.reference is not None:
            row["reference"] = {"passes": self.reference[0], "valid": self.reference[1]}
        return row


@dataclass(kw_only=True)
class Estimator:
    """Turns counts into estimates and remembers them: tasks are many, counts few.

    `rule` is the name of the stopping rule the probe ran under; it matters for ``bounded`` alone.
    """

    bands: Bands
    rule: str
    bounded_error: float
    population: tuple[float, ...]
    _known: dict[tuple[int, int, int, bool], Estimate] = field(default_factory=dict)

    def estimate(self, c: TaskCounts) -> Estimate:
        key = (c.passes, c.valid, c.planned, c.runs == 1)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._compute(*key)
        return found

    def _compute(self, passes: int, valid: int, planned: int, one_run: bool) -> Estimate:
        alpha, beta = posterior(passes, valid)
        mass = band_mass(passes, valid, self.bands)
        low, high = interval(passes, valid, LEVEL)
        basis, keep, possible = "full", None, self.bands.names
        if valid < planned:
            basis = "partial" if valid else "none"
            if planned <= MAX_TRIALS:
                rule = self._rule(planned, one_run)
                keep, possible = rule.verdict(passes, valid), rule.possible_bands(passes, valid)
                if keep is not None:
                    basis = "certain" if rule.certain(passes, valid) else "bounded"
        elif not valid:
            basis = "none"
        # A decided task may still move between bands of the same decision, never to the others.
        allowed = np.array(
            [
                n in possible and (keep is None or k == keep)
                for n, k in zip(self.bands.names, self.bands.kept, strict=True)
            ]
        )
        at = int(heaviest(np.where(allowed, mass, -1.0)))
        return Estimate(
            alpha=float(alpha),
            beta=float(beta),
            band=self.bands.names[at],
            mass={n: round(float(x), 6) for n, x in zip(self.bands.names, mass, strict=True)},
            low=round(float(low), 6),
            high=round(float(high), 6),
            basis=basis,
            keep=bool(self.bands.kept[at]) if keep is None else keep,
        )

    def _rule(self, planned: int, one_run: bool) -> StopRule:
        # Counts pooled from several probes were stopped by none of them as a whole: only certainty counts there.
        return build_rule(
            self.bands,
            trials=planned,
            rule=self.rule if one_run else "kept",
            bounded_error=self.bounded_error,
            population=self.population,
        )


def decide(
    counts: Iterable[TaskCounts], estimator: Estimator, *, min_valid: int, domains: Mapping[str, str]
) -> list[Decision]:
    """One decision a task, in order of uid, from the counts alone: ``train`` or ``drop``.

    Args:
        min_valid: valid trials that a task needs whose decision is neither certain nor from all planned trials.
        domains: by uid, of the tasks as the dataset has them; wins over what the records say.
    """
    out = []
    for c in sorted(counts, key=lambda c: c.uid):
        e = estimator.estimate(c)
        out.append(
            Decision(
                counts=c,
                domain=domains.get(c.uid) or c.domain or c.uid.split(":")[0].removesuffix(".py"),
                estimate=e,
                decision=TRAIN if e.keep and e.basis != "none" else DROP,
                reasons=[_reason(c, e, estimator)],
            )
        )
        if e.basis in ("partial", "full") and c.valid < min_valid:
            out[-1].drop(f"{c.valid} valid trials; at least {min_valid} are wanted (curate.min_valid_trials)")
    return out


def _reason(c: TaskCounts, e: Estimate, estimator: Estimator) -> str:
    if e.basis == "none":
        return f"no valid trial ({c.voids} void)" if c.voids else "not probed"
    does = "kept" if e.keep else "not kept"
    share = f"{c.passes} of {c.valid}: {e.mass[e.band]:.1%} of the posterior is {e.band}, which is {does}"
    missing = c.planned - c.valid
    if e.basis == "certain":
        return f"{c.passes} of {c.valid}: {does}, whatever the other {missing} of {c.planned} trials would give"
    if e.basis == "bounded":
        return f"{c.passes} of {c.valid}: {does}; the other {missing} trials would change that with a bounded chance"
    if e.basis == "partial":
        return f"{share} (decided though {missing} of {c.planned} trials are missing or void)"
    return share
