"""The contamination guard: proof that no task of the pool stands, in any guise, in the benchmark.

Four things may not be shared: a uid; a query, once spacing, case and punctuation are gone; an initial world state
together with the check of its final state; and text that is nearly the same (Jaccard similarity of word shingles).
The evidence holds the digests of both sides and the nearest pairs, so that another person can repeat the comparison
with only one side's tasks at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stateward.difficulty.near import PERMUTATIONS, Index, Near, same_start, similar_pairs
from stateward.difficulty.prints import SHINGLE, TaskPrint
from stateward.errors import UserError
from stateward.tasks.task import Task

NEAREST_LISTED = 20
#: Kind of overlap → what it says.
KINDS = {
    "uid": "the same uid",
    "query": "the same query, once normalised",
    "start": "the same initial world state and the same check",
    "text": "nearly the same text",
}


@dataclass(frozen=True)
class Overlap:
    """A pair that is shared. `kind` is a key of `KINDS`; `similarity` is 1 but for ``text``."""

    kind: str
    pool: str
    benchmark: str
    similarity: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "pool": self.pool,
            "benchmark": self.benchmark,
            "similarity": round(self.similarity, 6),
        }


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The outcome of one comparison. `nearest`: the most similar pairs of texts, over the threshold or not."""

    threshold: float
    pool: list[TaskPrint]
    benchmark: list[TaskPrint]
    overlaps: list[Overlap]
    nearest: list[Near]
    index: Index = field(default=Index(0, 0))

    @property
    def disjoint(self) -> bool:
        return not self.overlaps

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; see docs/difficulty.md for how to check it. Checks are listed for the worlds on both sides."""
        worlds = {p.world for p in self.pool} & {b.world for b in self.benchmark}
        return {
            "verdict": "disjoint" if self.disjoint else "overlap",
            "compared": {"pool": len(self.pool), "benchmark": len(self.benchmark)},
            "method": {
                "threshold": self.threshold,
                "shingle_words": SHINGLE,
                "permutations": PERMUTATIONS,
                "lsh_bands": self.index.bands,
                "lsh_rows": self.index.rows,
                "chance_to_find_at_threshold": round(self.index.chance(self.threshold), 9),
            },
            "overlaps": [o.to_json() for o in self.overlaps],
            "nearest": [
                {"pool": n.first, "benchmark": n.second, "similarity": round(n.similarity, 6)} for n in self.nearest
            ],
            "pool": [p.to_json(with_check=p.world in worlds) for p in self.pool],
            "benchmark": [p.to_json(with_check=p.world in worlds) for p in self.benchmark],
        }

    def refuse(self, where: str) -> UserError:
        """The error for an overlap; `where` says which file holds the evidence."""
        first = self.overlaps[0]
        pool = len({o.pool for o in self.overlaps})
        return UserError(
            f"{pool} tasks of the pool stand in the benchmark too; {first.pool} shares with {first.benchmark}"
            f" {KINDS[first.kind]}" + (f" (similarity {first.similarity:.2f})" if first.kind == "text" else ""),
            "a benchmark that was trained on measures memory",
            f"exclude them (curate.exclude) or take them out of the benchmark; all pairs are in {where}",
        )


def check_disjoint(pool_tasks: Sequence[Task], benchmark_tasks: Sequence[Task], threshold: float) -> Evidence:
    """Compare every task of the pool with every task of the benchmark.

    Args:
        threshold: Jaccard similarity of word shingles, in (0, 1], from which texts count as the same.

    Raises:
        UserError: a threshold out of range.
    """
    return compare([TaskPrint.of(t) for t in pool_tasks], [TaskPrint.of(t) for t in benchmark_tasks], threshold)


def compare(pool: Sequence[TaskPrint], benchmark: Sequence[TaskPrint], threshold: float) -> Evidence:
    """`check_disjoint` on digests."""
    if not 0 < threshold <= 1:
        raise UserError(
            f"curate.near_duplicate_threshold is {threshold}", "it is a similarity in (0, 1]", "0.85 is usual"
        )
    pool, benchmark = sorted(pool, key=lambda p: p.uid), sorted(benchmark, key=lambda p: p.uid)
    overlaps = []
    for kind in ("uid", "query"):
        held: dict[str, list[str]] = {}
        for b in benchmark:
            held.setdefault(getattr(b, kind), []).append(b.uid)
        overlaps += [
            Overlap(kind, p.uid, uid) for p in pool if getattr(p, kind) for uid in held.get(getattr(p, kind), ())
        ]
    overlaps += [Overlap("start", p, b) for p, b in same_start(pool, benchmark)]
    near, index = similar_pairs(pool, benchmark, threshold)
    overlaps += [Overlap("text", n.first, n.second, n.similarity) for n in near if n.similarity >= threshold]
    return Evidence(
        threshold=threshold,
        pool=pool,
        benchmark=benchmark,
        overlaps=overlaps,
        nearest=near[:NEAREST_LISTED],
        index=index,
    )
