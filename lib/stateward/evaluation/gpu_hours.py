"""GPU-hours of a stage: from Slurm's accounting where it answers, otherwise from the stage's own marks."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stateward.evaluation.costs import PriceList

#: Job ids → {job id: seconds × GPUs of all its starts}; empty if there is no accounting.
Accounting = Callable[[list[str]], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class GpuHours:
    """`hours` and their price in `dollars` (NaN without a price).

    `source`: ``accounting``, ``marks``, or ``none``, in which case nothing is known and both are NaN.
    """

    hours: float
    dollars: float
    source: str
    note: str = ""


def gpu_hours(manifest: dict[str, Any], prices: PriceList, accounting: Accounting | None = None) -> GpuHours:
    """GPU-hours that the jobs of a stage held, from its manifest (`starts` and `workers`)."""
    accounting = sacct if accounting is None else accounting
    marks = [*manifest.get("starts", ()), *manifest.get("workers", ())]
    jobs = sorted({m["slurm"]["SLURM_JOB_ID"] for m in marks if m.get("slurm", {}).get("SLURM_JOB_ID")})
    found = accounting(jobs) if jobs else {}
    names = {str(m["gpu"]) for m in marks if m.get("gpu")}
    if jobs and found.keys() >= set(jobs):
        return _priced(sum(found.values()) / 3600, "accounting", "", names, prices)
    if not manifest.get("workers"):
        return GpuHours(hours=math.nan, dollars=math.nan, source="none", note="no worker left a mark")
    seconds = 0.0
    open_ends = 0
    end_of_stage = manifest.get("finished")
    for worker in manifest.get("workers", ()):
        gpus = _gpus(worker)
        end = worker.get("ended", end_of_stage)
        if gpus and end:
            seconds += gpus * (end - worker["time"])
        if gpus and "ended" not in worker:
            open_ends += 1
    note = f"{open_ends} workers left no end; counted to the end of the stage" if open_ends else ""
    return _priced(seconds / 3600, "marks", note, names, prices)


def sacct(jobs: list[str]) -> dict[str, float]:
    """GPU-seconds of these jobs by Slurm's accounting; empty if it is not there or does not answer.

    ``--duplicates``: a job that was requeued has a record for each start, of which sacct otherwise shows the last.
    """
    if shutil.which("sacct") is None:
        return {}
    command = ["sacct", "-X", "-n", "-P", "--duplicates", "-o", "JobIDRaw,ElapsedRaw,AllocTRES", "-j", ",".join(jobs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    out: dict[str, float] = {}
    for line in done.stdout.splitlines():
        job, elapsed, tres = line.split("|", 2)
        gpus = re.search(r"gres/gpu=(\d+)", tres)
        job = job.partition("+")[0]  # starts, and components of a heterogeneous job, add up
        out[job] = out.get(job, 0.0) + (float(elapsed) * int(gpus.group(1)) if gpus else 0.0)
    return out


def _gpus(worker: dict[str, Any]) -> int:
    text = str(worker.get("gpus", worker.get("slurm", {}).get("SLURM_GPUS_ON_NODE", "0")))
    return int(text) if text.isdecimal() else 0


def _priced(hours: float, source: str, note: str, names: set[str], prices: PriceList) -> GpuHours:
    price = prices.gpu_hour.get(next(iter(names), "any")) if len(names) <= 1 else None
    if price is None:
        price = prices.gpu_hour.get("any")
    dollars = 0.0 if hours == 0 else math.nan if price is None else hours * price
    return GpuHours(hours=hours, dollars=dollars, source=source, note=note)
