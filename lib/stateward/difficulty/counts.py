"""What the probes counted: passes, valid trials and voids of each task, for one policy."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stateward.errors import UserError


@dataclass(slots=True)
class TaskCounts:
    """One task's trials in one or several probes.

    `valid` = passes + fails; `voids` are trials that still have no valid attempt. `planned` is the number of valid
    trials that was planned, over all probes of the task; a stop rule may have needed fewer.
    """

    uid: str
    domain: str = ""
    passes: int = 0
    valid: int = 0
    voids: int = 0
    planned: int = 0
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Source:
    """One input, as the manifest names it.

    Attributes:
        path: as given.
        kind: ``records`` (a stage of ours) or ``jsonl``.
        sha256: of the file's bytes, or of the stage's sorted (uid, index, settings, outcome) columns, which do not
            depend on how trials were dealt to shards.
        rows: trials read, voids included.
    """

    path: str
    kind: str
    sha256: str
    rows: int
    tasks: int
    policy: str
    settings: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """All but the path, JSON-ready."""
        return {key: value for key, value in asdict(self).items() if key != "path"}

    def order(self) -> tuple[str, str, str]:
        """A sorting key that does not depend on the order in which inputs are given."""
        return self.sha256, self.kind, self.path


@dataclass(kw_only=True)
class Counts:
    """The counts of one policy over all inputs.

    Attributes:
        policy: fingerprint or name; empty if no input says.
        tasks: by uid, in order of uid.
        plan: the stopping rule's settings of the inputs, if all of them say the same; otherwise empty.
    """

    policy: str
    tasks: dict[str, TaskCounts]
    sources: list[Source]
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.sources)


def sorted_sources(counts: Counts | None) -> list[Source]:
    """The inputs in an order that does not depend on how they were given; none of no counts."""
    return sorted(counts.sources, key=Source.order) if counts else []


def merged(parts: Sequence[Counts], *, what: str = "probe") -> Counts:
    """The sum of several inputs' counts.

    Raises:
        UserError: the inputs are of different policies, or one input is given twice.
    """
    if not parts:
        raise UserError(f"no {what} results were given", do="name a stage directory or a JSONL file")
    sources = sorted((s for p in parts for s in p.sources), key=Source.order)
    _one_policy(sources, what)
    for first, second in itertools.pairwise(sources):
        if first.sha256 == second.sha256:
            raise UserError(
                f"{first.path} and {second.path} hold the same trials",
                "counting a trial twice would make the posterior too sure",
                "give each run once",
            )
    if len(parts) == 1:
        return parts[0]
    tasks: dict[str, TaskCounts] = {}
    for part in sorted(parts, key=lambda p: [s.order() for s in p.sources]):
        for uid, c in part.tasks.items():
            total = tasks.get(uid)
            if total is None:
                tasks[uid] = TaskCounts(uid, c.domain, c.passes, c.valid, c.voids, c.planned, c.runs)
                continue
            total.domain = total.domain or c.domain
            total.passes += c.passes
            total.valid += c.valid
            total.voids += c.voids
            total.planned += c.planned
            total.runs += c.runs
    plans = [p.plan for p in parts]
    return Counts(
        policy=next((s.policy for s in sources if s.policy), ""),
        tasks={uid: tasks[uid] for uid in sorted(tasks)},
        sources=sources,
        plan=plans[0] if all(p == plans[0] for p in plans) else {},
    )


def _one_policy(sources: Iterable[Source], what: str) -> None:
    named = [s for s in sources if s.policy]
    for other in named[1:]:
        if other.policy != named[0].policy:
            raise UserError(
                f"two policies are mixed in one {what}: {named[0].policy!r} in {named[0].path}"
                f" and {other.policy!r} in {other.path}",
                "difficulty is relative to one policy; pooled counts describe neither",
                "give the runs of one policy only",
            )


def digest(chunks: Iterable[bytes]) -> str:
    """Hex SHA-256 of the chunks, one after the other."""
    total = hashlib.sha256()
    for chunk in chunks:
        total.update(chunk)
    return total.hexdigest()
