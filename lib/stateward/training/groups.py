"""Which groups a step trains on: filtering by the binary outcome, refilling, and the bounds on both.

Pure arithmetic over reports; Ray, Verl and the store do not appear here. A *group* is the episodes of one task in one
step. It is *kept* when its outcomes differ, *signal-free* when all passed or all failed (every advantage would be 0),
and *void* when one of its episodes stayed void after its attempts (a mean over the rest would compare unequal groups).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from stateward.errors import DeadEnd, StatewardError
from stateward.outcome import Outcome
from stateward.store.starts import DO, mixed_starts


class Verdict(StrEnum):
    KEPT = "kept"
    SIGNAL_FREE = "signal_free"
    VOID = "void"


class StepStopped(StatewardError):
    """A step cannot be filled within its bounds. The text has the shares; the run ends and can be resumed."""


class SignalExhausted(StepStopped, DeadEnd):
    """Not for faults: the tasks tell the policy too little. A resume draws the same groups with the same seeds."""


@dataclass(frozen=True, kw_only=True)
class SessionReport:
    """What the driver needs to know of one episode of a group (its last attempt).

    `voids` are the fault kinds of all attempts that were void, the last one included if `outcome` is void.
    `seconds` is the episode's wall clock by phase. `start` is the hash of the world's initial state.
    """

    outcome: Outcome
    reward: float
    start: str = ""
    voids: tuple[str, ...] = ()
    fault_cause: str = ""
    finish: str = ""
    turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    sampled_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """One finished group. `key` is its name in Verl's transfer queue."""

    key: str
    uid: str
    sessions: tuple[SessionReport, ...]

    @property
    def passes(self) -> int:
        return sum(session.outcome is Outcome.PASS for session in self.sessions)

    @property
    def attempts(self) -> int:
        """Episodes that were run for it, voids included."""
        void_last = sum(session.outcome is Outcome.VOID for session in self.sessions)
        return len(self.sessions) - void_last + sum(len(session.voids) for session in self.sessions)


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """What becomes of a group with these outcomes."""
    if Outcome.VOID in outcomes:
        return Verdict.VOID
    return Verdict.KEPT if len(set(outcomes)) > 1 else Verdict.SIGNAL_FREE


def trains(outcomes: Sequence[Outcome], filtering: bool) -> bool:
    """Whether a step trains on a group with these outcomes. Without filtering it does unless one is void."""
    found = verdict(outcomes)
    return found is Verdict.KEPT or (found is Verdict.SIGNAL_FREE and not filtering)


@dataclass(kw_only=True)
class StepGroups:
    """The groups of one step: how many to hand out now, and whether the step is full.

    Args:
        wanted: groups that the step trains on. group_size: episodes of a group.
        max_rounds: the step may hand out `wanted` × (1 + max_rounds) groups in all; 0 turns filtering off: signal-free
            groups are trained on as they are, and only void ones are replaced, at most `wanted` of them.
        max_void_share: of all episodes run in the step; above it the step stops. Judged once half of the wanted
            episodes ran, so that one early fault does not decide.
    """

    wanted: int
    group_size: int
    max_rounds: int
    max_void_share: float
    handed_out: int = 0
    kept: list[GroupReport] = field(default_factory=list)
    replaced: list[GroupReport] = field(default_factory=list)
    voids: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    signal_free: int = 0
    void_groups: int = 0

    @property
    def budget(self) -> int:
        """Groups that may be handed out in the step."""
        return self.wanted * (1 + max(1, self.max_rounds))

    @property
    def filtering(self) -> bool:
        return self.max_rounds > 0

    @property
    def in_flight(self) -> int:
        return self.handed_out - len(self.kept) - len(self.replaced)

    @property
    def full(self) -> bool:
        return len(self.kept) == self.wanted

    @property
    def refills(self) -> int:
        return max(0, self.handed_out - self.wanted)

    def hand_out(self) -> int:
        """How many more groups to start now, so that kept and running ones make up the step.

        Raises:
            StepStopped: groups are missing and the budget is spent; `SignalExhausted` if they were missing without a
                single void as well.
        """
        missing = self.wanted - len(self.kept) - self.in_flight
        number = min(missing, self.budget - self.handed_out)
        if number == 0 and self.in_flight == 0 and missing:
            kind = SignalExhausted if missing > self.void_groups else StepStopped
            raise kind(self._exhausted())
        self.handed_out += number
        return number

    def add(self, report: GroupReport) -> Verdict:
        """Take in a finished group.

        Raises:
            StepStopped: the share of voids is above its limit, or episodes of the group began in different states.
        """
        valid = (session for session in report.sessions if session.outcome is not Outcome.VOID)
        if mixed_starts((report.uid, session.start) for session in valid):
            raise StepStopped(
                f"episodes of {report.uid} began in different states\n"
                "  why: their outcomes cannot be compared, and an advantage is a comparison within the group\n"
                f"  do:  {DO}"
            )
        self.attempts += report.attempts
        for session in report.sessions:
            self.voids.update(session.voids)
        found = verdict([session.outcome for session in report.sessions])
        self.signal_free += found is Verdict.SIGNAL_FREE
        self.void_groups += found is Verdict.VOID
        keep = trains([session.outcome for session in report.sessions], self.filtering)
        (self.kept if keep else self.replaced).append(report)
        self._check_voids(report)
        return Verdict.KEPT if keep else found

    def _check_voids(self, last: GroupReport) -> None:
        total = sum(self.voids.values())
        share = total / self.attempts if self.attempts else 0.0
        if share <= self.max_void_share or 2 * self.attempts < self.wanted * self.group_size:
            return
        cause = next((s.fault_cause for s in last.sessions if s.fault_cause), "")
        raise StepStopped(
            f"{total} of {self.attempts} episodes ({share:.0%}) are void, more than train.max_void_share="
            f"{self.max_void_share:g}\n  by kind: {_counts(self.voids)}"
            + (f"\n  the last cause: {cause}" if cause else "")
            + "\n  do:  mend the cause, then run the same command again: it resumes from the last checkpoint"
        )

    def _exhausted(self) -> str:
        done = len(self.kept) + len(self.replaced)
        return (
            f"only {len(self.kept)} of {self.wanted} groups carry a signal after {done} groups "
            f"({self.attempts} episodes)\n"
            f"  signal-free: {self.signal_free} of {done} ({self.signal_free / max(1, done):.0%}), void: "
            f"{self.void_groups}\n"
            "  why: every episode of a signal-free group passed, or every one failed; its advantages are 0\n"
            "  do:  curate the pool for the policy as it is now (it may have learned it), or raise "
            "train.max_refill_rounds; resuming starts from the last checkpoint"
        )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.most_common())
