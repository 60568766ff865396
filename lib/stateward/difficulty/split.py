"""A stratified split of the selected tasks, deterministic by seed and independent of their order."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

Stratum = tuple[Hashable, ...]


def stratified_test(
    strata: Mapping[str, Stratum], share: float, seed: int, *, together: Iterable[Sequence[str]] = ()
) -> set[str]:
    """The uids of the test side: `share` of all, to the nearest task, spread over the strata by largest remainder.

    Args:
        strata: by uid, for instance (domain, band, valid trials).
        together: groups of uids that must not be separated, such as near duplicates. A group counts in the stratum of
            its first uid, and may leave the test side short by less than its size.
    """
    units: dict[str, list[str]] = {uid: [uid] for uid in strata}
    for group in together:
        members = sorted(uid for uid in group if uid in strata)
        for uid in members[1:]:
            units[members[0]] += units.pop(uid)
    by_stratum: dict[Stratum, list[str]] = defaultdict(list)
    for first in units:
        by_stratum[strata[first]].append(first)
    sizes = {stratum: sum(len(units[u]) for u in firsts) for stratum, firsts in by_stratum.items()}
    quota = _quotas(sizes, share, seed)
    test: set[str] = set()
    for stratum, firsts in by_stratum.items():
        room = quota[stratum]
        for first in sorted(firsts, key=lambda u: _draw(seed, u)):
            if len(units[first]) <= room:
                test.update(units[first])
                room -= len(units[first])
    return test


def _quotas(sizes: Mapping[Stratum, int], share: float, seed: int) -> dict[Stratum, int]:
    exact = {stratum: size * share for stratum, size in sizes.items()}
    quota = {stratum: int(x) for stratum, x in exact.items()}
    rest = round(sum(sizes.values()) * share) - sum(quota.values())
    # Equal remainders are common (strata of one task each); a draw by seed keeps them from favouring early names.
    order = sorted(exact, key=lambda s: (quota[s] - exact[s], _draw(seed, repr(s))))
    for stratum in order[:rest]:
        quota[stratum] += 1
    return quota


def _draw(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}|{text}".encode()).digest()
