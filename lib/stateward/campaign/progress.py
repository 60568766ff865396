"""The progress bar of a sampling shard: trials done, with passes, fails and voids beside it."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType
from typing import Self

from tqdm import tqdm

from stateward.outcome import EpisodeRecord


class EpisodeBar:
    """Counts trials up to `total`; drawn on a terminal, and as one line every half minute in a log file."""

    def __init__(self, title: str, total: int) -> None:
        terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total, desc=title, unit="trial", mininterval=0.5 if terminal else 30.0, dynamic_ncols=terminal
        )
        self._outcomes: Counter[str] = Counter()

    def episode(self, record: EpisodeRecord) -> None:
        self._outcomes[record.outcome.value] += 1
        self._bar.set_postfix({name: self._outcomes[name] for name in ("pass", "fail", "void")}, refresh=False)
        self._bar.update(1)

    def skip(self, number: int) -> None:
        """Trials that need not run: found from before, or saved by the stop rule."""
        self._bar.update(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.close()
