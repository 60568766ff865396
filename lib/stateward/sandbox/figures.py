"""What a sandbox costs, as the kernel counts it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """`root` and everything under it, as far as it is alive."""
    found, open_ = [], [root]
    while open_:
        pid = open_.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                open_ += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def tree_cpu_seconds(root: int) -> float:
    """User and system time of `root`, of everything alive under it, and of everything that was reaped under it."""
    total = 0
    for pid in process_tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(value) for value in fields[11:15])  # utime stime cutime cstime (proc(5))
    return total / _TICKS


def memory_mb(pid: int, *names: str) -> float:
    """Sum of fields of ``smaps_rollup`` in MB of 10^6 bytes: ``Private_Dirty`` and ``Private_Clean`` are not shared."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            total += int(rest.split()[0])
    return total * 1024 / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank); NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
