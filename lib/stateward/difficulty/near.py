"""Near-duplicate texts: MinHash finds candidate pairs, the exact Jaccard similarity of their shingles judges them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateward.difficulty.prints import TaskPrint

PERMUTATIONS = 128
#: Candidates are looked for from this share of the threshold on, so that one at the threshold is hardly ever missed.
REACH = 0.8


@dataclass(frozen=True)
class Near:
    """Two tasks and the exact Jaccard similarity of their shingles, in [0, 1]."""

    first: str
    second: str
    similarity: float


@dataclass(frozen=True)
class Index:
    """Locality-sensitive hashing of MinHash signatures: bands of rows; a pair of similarity s becomes a candidate with
    probability 1 - (1 - s ** rows) ** bands."""

    bands: int
    rows: int

    def chance(self, similarity: float) -> float:
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def similar_pairs(
    first: Sequence[TaskPrint], second: Sequence[TaskPrint] | None, threshold: float
) -> tuple[list[Near], Index]:
    """Candidate pairs between two sets (or within one, if `second` is None), most similar first.

    Pairs from about `REACH` × `threshold` on are listed, so that the list also shows how near the nearest are.
    """
    from datasketch import MinHashLSH

    lsh = MinHashLSH(threshold=REACH * threshold, num_perm=PERMUTATIONS)
    index = Index(bands=lsh.b, rows=lsh.r)
    stored = [p for p in (first if second is None else second) if p.shingles]
    # No task can reach s with a set of which it shares less than a share s of its own shingles.
    known: set[str] = set().union(*(p.shingles for p in stored))
    asking = stored if second is None else [p for p in first if _share(p.shingles, known) >= REACH * threshold]
    found: list[Near] = []
    if stored and asking:
        by_position = list(stored)
        for position, signature in enumerate(_signatures(stored)):
            lsh.insert(position, signature)
        for at, (task, signature) in enumerate(zip(asking, _signatures(asking), strict=True)):
            for position in lsh.query(signature):
                if second is None and position <= at:
                    continue
                other = by_position[position]
                found.append(Near(task.uid, other.uid, jaccard(task.shingles, other.shingles)))
    found.sort(key=lambda n: (-n.similarity, n.first, n.second))
    return found, index


def clusters(tasks: Sequence[TaskPrint], threshold: float) -> list[list[str]]:
    """Groups of two and more uids that are linked by equal queries, equal starts or near-duplicate texts."""
    parent = {t.uid: t.uid for t in tasks}

    def root(uid: str) -> str:
        while parent[uid] != uid:
            parent[uid] = parent[parent[uid]]
            uid = parent[uid]
        return uid

    def link(a: str, b: str) -> None:
        low, high = sorted((root(a), root(b)))
        parent[high] = low

    seen: dict[tuple[str, str], str] = {}
    for task in tasks:
        for kind, value in (("query", task.query), ("start", task.start)):
            if value:
                link(seen.setdefault((kind, value), task.uid), task.uid)
    for near in similar_pairs(tasks, None, threshold)[0]:
        if near.similarity >= threshold:
            link(near.first, near.second)
    groups: dict[str, list[str]] = {}
    for uid in sorted(parent):
        groups.setdefault(root(uid), []).append(uid)
    return [group for group in groups.values() if len(group) > 1]


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """|a ∩ b| / |a ∪ b|; 0 for two empty sets."""
    union = len(a | b)
    return len(a & b) / union if union else 0.0


def _share(shingles: frozenset[str], known: set[str]) -> float:
    return len(shingles & known) / len(shingles) if shingles else 0.0


def _signatures(tasks: Sequence[TaskPrint]) -> Iterator[object]:
    from datasketch import MinHash

    texts = ([s.encode() for s in task.shingles] for task in tasks)
    return iter(MinHash.generator(texts, num_perm=PERMUTATIONS))
