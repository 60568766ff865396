"""Before any figure: exactly the planned trials, each once, none void."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from stateward.evaluation.counts import planned_rows
from stateward.evaluation.plan import Plan
from stateward.outcome import Trial
from stateward.store import Duplicate, Records
from stateward.store.starts import DO, mixed_starts


@dataclass(kw_only=True)
class Coverage:
    """What the store holds against what was planned. A run is scored only if `complete`.

    Attributes:
        planned, valid: numbers of trials.
        missing: planned, no record. void: planned, every attempt a system fault.
        unexpected: records of trials that were not planned (another policy, other settings, other tasks).
        duplicates: trials with two different valid records; the later attempt is kept.
        mixed: tasks whose valid trials began in different states.
    """

    planned: int
    valid: int
    missing: list[Trial] = field(default_factory=list)
    void: list[Trial] = field(default_factory=list)
    unexpected: list[Trial] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    duplicates_accepted: bool = False
    voids_accepted: bool = False
    imported: bool = False

    @property
    def complete(self) -> bool:
        void, duplicates = self.void and not self.voids_accepted, self.duplicates and not self.duplicates_accepted
        return not (self.missing or void or self.unexpected or duplicates or self.mixed)

    @property
    def owed(self) -> list[Trial]:
        """What a repair runs: missing and void trials, nothing else."""
        return [*self.missing, *self.void]

    def sentences(self, show: int = 5) -> Iterator[str]:
        """In words, with at most `show` names of each kind."""
        yield f"{self.valid} of {self.planned} planned trials have a valid record"
        repair = "run jobs/evaluate.py --repair"
        if self.imported:
            repair = "they were to be run elsewhere; import a file that has them"
        parts: list[tuple[str, list[str], str]] = [
            ("missing", [f"{t.uid}#{t.index}" for t in self.missing], repair),
            ("void", [f"{t.uid}#{t.index}" for t in self.void], f"{repair}, or give --void-as-failure"),
            ("not planned", [t.key for t in self.unexpected], "move their shards out of the run"),
            ("run twice", [d.key for d in self.duplicates], "give --accept-duplicates: the later attempt counts"),
            ("tasks begun in different states", self.mixed, DO),
        ]
        for what, names, do in parts:
            if names:
                more = f" and {len(names) - show} more" if len(names) > show else ""
                if self.duplicates_accepted and what == "run twice":
                    do = "the later attempt counts"
                if self.voids_accepted and what == "void":
                    do = "counted as failures"
                yield f"{len(names)} {what}: {', '.join(names[:show])}{more} ({do})"


def coverage(
    records: Records, plan: Plan, *, accept_duplicates: bool = False, void_as_failure: bool = False
) -> Coverage:
    """Compare the records of a stage with its plan."""
    rows, task = planned_rows(records.columns, plan)
    outcome = records.columns["outcome"][rows]
    state = np.zeros((len(plan.uids), plan.trials), np.int8)  # 0 missing, 1 void, 2 valid
    state[task, records.columns["index"][rows]] = np.where(outcome == b"void", 1, 2)
    found = Coverage(
        planned=state.size,
        valid=int((state == 2).sum()),
        duplicates_accepted=accept_duplicates,
        voids_accepted=void_as_failure,
        imported=plan.imported,
    )
    found.missing, found.void = (
        [plan.trial(int(t), int(i)) for t, i in zip(*np.nonzero(state == which), strict=True)] for which in (0, 1)
    )
    unplanned = np.setdiff1d(np.arange(len(records)), rows, assume_unique=True)
    found.unexpected = records.trials(unplanned)
    valid = rows[outcome != b"void"]
    starts = (records.columns[name][valid].tolist() for name in ("uid", "initial_state_hash"))
    found.mixed = mixed_starts((uid.decode(), start.decode()) for uid, start in zip(*starts, strict=True))
    keys = {t.key for t in plan.all_trials()} if records.duplicates else set()
    found.duplicates = [d for d in records.duplicates if d.key in keys]
    return found


def missing_trials(records: Records, plan: Plan) -> list[tuple[Trial, int]]:
    """The trials that are still owed, each with the number of attempts it has had (0: it never ran)."""
    owed = coverage(records, plan).owed
    if not owed:
        return []
    attempts = dict(zip(records.trials(), records.columns["attempt"].tolist(), strict=True))
    return [(trial, attempts.get(trial, 0)) for trial in owed]
