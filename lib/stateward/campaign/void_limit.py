"""A shard that only makes voids stops: what breaks every episode is not an episode's own fault."""

from __future__ import annotations

from collections import Counter

from stateward.errors import SystemFault
from stateward.outcome import EpisodeRecord, Outcome

#: Episodes before the share of voids is judged: a few may be void together, as after one lost connection.
_JUDGED_FROM = 20


class VoidLimit:
    """Counts the episodes of one call.

    Args:
        setting: name of the limit in the configuration. most: share of episodes that may be void.
    """

    def __init__(self, setting: str, most: float) -> None:
        self._setting, self._most = setting, most
        self._episodes = 0
        self._kinds: Counter[str] = Counter()

    def count(self, record: EpisodeRecord) -> None:
        """One more attempt, which has been written.

        Raises:
            SystemFault: too many are void; of the kind that most of them have.
        """
        self._episodes += 1
        if record.outcome is not Outcome.VOID:
            return
        self._kinds[record.fault_kind] += 1
        voids = self._kinds.total()
        if self._episodes < _JUDGED_FROM or voids <= self._most * self._episodes:
            return
        counts = ", ".join(f"{number} {kind}" for kind, number in self._kinds.most_common())
        raise SystemFault(
            self._kinds.most_common(1)[0][0],
            f"{voids} of {self._episodes} episodes are void, more than {self._setting}={self._most:g}"
            f"\n  by kind: {counts}\n  the last cause: {record.fault_cause}"
            "\n  do:  mend the cause, then call this again: it runs what is missing or void",
        )
