"""Near-duplicate texts: MinHash finds candidate pairs, the exact Jaccard similarity of their shingles judges them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateward.difficulty.prints import TaskPrint

PERMUTATIONS = 128
#: Candidates are looked for from this similarity on (or from 0.8 × threshold, if that is less): far enough below the
#: threshold that a pair at the threshold is hardly ever missed, and that the evidence shows how near the nearest are.
REACH = 0.5


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

    Pairs from about `REACH` on are found, whether they reach the threshold or not.
    """
    from datasketch import MinHashLSH

    reach = min(REACH, 0.8 * threshold)
    lsh = MinHashLSH(threshold=reach, num_perm=PERMUTATIONS)
    index = Index(bands=lsh.b, rows=lsh.r)
    stored = [p for p in (first if second is None else second) if p.shingles]
    # No task can reach s with a set of which it shares less than a share s of its own shingles.
    known: set[str] = set().union(*(p.shingles for p in stored))
    asking = stored if second is None else [p for p in first if _share(p.shingles, known) >= reach]
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


def same_start(first: Sequence[TaskPrint], second: Sequence[TaskPrint]) -> list[tuple[str, str]]:
    """Pairs of uids with equal initial worlds and equal checks; a task is not paired with itself."""
    held: dict[str, list[TaskPrint]] = {}
    for task in second:
        held.setdefault(task.world, []).append(task)
    return [
        (task.uid, other.uid)
        for task in first
        for other in held.get(task.world, ())
        if other is not task and other.check == task.check
    ]


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

    seen: dict[str, str] = {}
    for task in tasks:
        if task.query:
            link(seen.setdefault(task.query, task.uid), task.uid)
    for a, b in same_start(tasks, tasks):
        link(a, b)
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

    # Tasks of one domain share most of their shingles, so each is hashed once.
    hashes = {text: zlib.crc32(text.encode()) for text in set().union(*(t.shingles for t in tasks))}
    texts = ([hashes[text] for text in task.shingles] for task in tasks)
    return iter(MinHash.generator(texts, num_perm=PERMUTATIONS, hashfunc=int))
