"""Do the trials of one task begin in one state? Outcomes of different initial states are not one quantity."""

from __future__ import annotations

from collections.abc import Iterable

#: Why trials differ, and what to do: said wherever the trials of a task are refused.
WHY = "the trials of one task begin in different states, so their outcomes are not one success rate"
DO = (
    "let the server keep its state in memory or in files of its working directory, and leave clocks and random ids out"
    " of its state; then sample these tasks again in a new run directory"
)


def mixed_starts(trials: Iterable[tuple[str, str]]) -> list[str]:
    """The tasks, by first appearance, whose trials have several initial states.

    Args:
        trials: (task, hash of the initial state) of each trial; an empty hash, of a world that never opened, is
            no state.
    """
    first: dict[str, str] = {}
    mixed: dict[str, None] = {}
    for uid, start in trials:
        if start and first.setdefault(uid, start) != start:
            mixed[uid] = None
    return list(mixed)
