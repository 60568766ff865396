"""Per-task counts of one run: everything that the success metrics need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stateward.evaluation.plan import Plan
from stateward.store import Records
from stateward.store.shard import Column

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Successes by task; T tasks in the order of the plan.

    Attributes:
        passes: [T] passed trials (c). valid: [T] trials that are not void (n). void: [T] trials whose last attempt
            was void. late: [T] passes of trials that had been void before. trials: planned of each task.
        domains: [T].
    """

    uids: tuple[str, ...]
    domains: tuple[str, ...]
    passes: Ints
    valid: Ints
    void: Ints
    late: Ints
    trials: int

    def __len__(self) -> int:
        return len(self.uids)

    def take(self, positions: Ints) -> Counts:
        """The counts of some of the tasks."""
        return Counts(
            uids=tuple(self.uids[i] for i in positions),
            domains=tuple(self.domains[i] for i in positions),
            passes=self.passes[positions],
            valid=self.valid[positions],
            void=self.void[positions],
            late=self.late[positions],
            trials=self.trials,
        )

    def void_as_failure(self) -> Counts:
        """The other system-error policy: nothing is run again, so a trial that was ever void has failed."""
        return Counts(
            uids=self.uids,
            domains=self.domains,
            passes=self.passes - self.late,
            valid=self.valid + self.void,
            void=np.zeros_like(self.void),
            late=np.zeros_like(self.late),
            trials=self.trials,
        )


def planned_rows(c: dict[str, Column], plan: Plan) -> tuple[Ints, Ints]:
    """Positions in the columns of records that belong to planned trials, and for each that of its task in the plan."""
    order = np.argsort(np.array([u.encode() for u in plan.uids], dtype="S"))
    uids = np.array([u.encode() for u in plan.uids], dtype="S")[order]
    if not len(uids) or not len(c["uid"]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(uids, c["uid"]), len(uids) - 1)
    fits = (uids[at] == c["uid"]) & (c["index"] < plan.trials)
    fits &= (c["policy"] == plan.policy.encode()) & (c["settings"] == plan.settings.encode())
    rows = np.flatnonzero(fits)
    return rows, order[at[rows]]


def counts(records: Records, plan: Plan) -> Counts:
    """Count the planned trials of `records`; records that were not planned are left out."""
    rows, task = planned_rows(records.columns, plan)
    outcome = records.columns["outcome"][rows]
    n = len(plan.uids)
    total = np.bincount(task, minlength=n)
    void = np.bincount(task[outcome == b"void"], minlength=n)
    domain = [""] * n
    for i, d in zip(task.tolist(), records.columns["domain"][rows].tolist(), strict=True):
        domain[i] = d.decode()
    passed = outcome == b"pass"
    again = _void_before(records, plan)
    late = task[passed][np.isin(task[passed] * plan.trials + records.columns["index"][rows][passed], again)]
    return Counts(
        uids=plan.uids,
        domains=tuple(domain),
        passes=np.bincount(task[passed], minlength=n),
        valid=total - void,
        void=void,
        late=np.bincount(late, minlength=n),
        trials=plan.trials,
    )


def _void_before(records: Records, plan: Plan) -> Ints:
    """Planned trials, as task × trials + index, that an earlier attempt left void."""
    dropped = records.dropped
    rows, task = planned_rows(dropped, plan)
    void = dropped["outcome"][rows] == b"void"
    return np.unique(task[void] * plan.trials + dropped["index"][rows][void])
