"""When the next hit comes: a stage of the training job by lot, then so many seconds into it by lot."""

from __future__ import annotations

import random
from pathlib import Path

from faults import Site, driver, training_processes

#: Of the training job. "start": from the driver's begin to its first step; "steps": it has trained one since it began.
#: A job without a driver boots, or ends after a hit.
STAGES = ("", "boot", "start", "steps")
#: Per kind of campaign: stages to aim at, and how many seconds into the stage the hit comes. Plain campaigns are hit at
#: any time; the others, which are there for the training job, in it alone. A boot takes half a minute and more.
AIMS = {
    "plain": {"": (3.0, 9.0)},
    "ray": {"boot": (0.0, 30.0), "steps": (0.0, 6.0)},
    "verl": {"boot": (0.0, 30.0), "start": (0.0, 60.0), "steps": (0.0, 10.0)},
}


class Stage:
    """Where the training job of a campaign stands."""

    def __init__(self, site: Site, metrics: Path) -> None:
        self.site, self.metrics = site, metrics
        self._driver, self._lines = 0, 0

    def now(self) -> str:
        processes = training_processes(self.site)
        if not processes:
            return ""
        process = driver(processes)
        if process is None:
            return "boot"
        lines = self.metrics.read_bytes().count(b"\n") if self.metrics.is_file() else 0
        # A driver that goes on from a checkpoint may shorten the log first.
        self._lines = min(self._lines, lines) if process.pid == self._driver else lines
        self._driver = process.pid
        return "steps" if lines > self._lines else "start"


class Aim:
    """One hit to come. The stage is a lower bound: a job that is beyond it already is hit too."""

    def __init__(self, kind: str, lot: random.Random) -> None:
        self.stage = lot.choice(sorted(AIMS[kind]))
        self.delay = lot.uniform(*AIMS[kind][self.stage])
        self._since: float | None = None

    def is_due(self, stage: str, now: float) -> bool:
        """Whether it is time, with the job at `stage`; the seconds count anew if the job fell back."""
        if STAGES.index(stage) < STAGES.index(self.stage):
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= self.delay
