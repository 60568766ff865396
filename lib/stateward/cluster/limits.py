"""What this process may really use of its allocation: the cores of its affinity and the memory of its control groups.

Slurm's variables say what was allocated. What a step got of it is another thing: srun takes the first component's
``--mem`` for every component of a heterogeneous job, and a site may bind a task to one core (``Autobind``).
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_CGROUP, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
#: A limit below this share of the allocation is refused. Of a whole node Slurm gives out less than the kernel reports:
#: RealMemory is often set some percent lower.
_ENOUGH = 0.75


def withheld(cpus: int, memory_mb: int, *, root: Path = _CGROUP, own: Path = _OWN) -> list[str]:
    """What this process lacks of its allocated `cpus` and `memory_mb`, with the cause and what to do; empty if nothing.

    Only what the machine has is asked for, as the nodes of a practice cluster pretend to be larger than their machine.
    """
    problems = []
    allocated, usable = min(cpus, _machine_cores(root)), len(os.sched_getaffinity(0))
    if usable < allocated:
        problems.append(
            f"may run on {usable} of {allocated} allocated cores: the step is bound (TaskPluginParam=Autobind, or the "
            "environment has SLURM_CPU_BIND); start it with srun --cpu-bind=none"
        )
    memory, limit = min(memory_mb, _machine_memory(root)), memory_limit(root=root, own=own)
    if limit is not None and limit < _ENOUGH * memory:
        problems.append(
            f"may use {limit} MB of {memory} MB allocated memory: its control group has that limit, which srun takes "
            "from the job's first component unless it is told --mem=0; start the step with srun --mem=0"
        )
    return problems


def memory_limit(*, root: Path = _CGROUP, own: Path = _OWN) -> int | None:
    """The lowest memory limit in MB of this process's control group and of those above it; None if there is none."""
    limits = []
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / controllers
        group = base / path.strip("/")
        limits += [_megabytes(folder) for folder in (group, *group.parents) if folder.is_relative_to(base)]
    return min((limit for limit in limits if limit is not None), default=None)


def _megabytes(group: Path) -> int | None:
    """The limit of one control group, of version 2 or 1."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (group / name).is_file():
            text = (group / name).read_text().strip()
            return None if text == "max" else int(text) >> 20
    return None


def _machine_memory(root: Path) -> int:
    """MB of this machine, or of the container that it seems to be: the topmost control group then has a limit."""
    limits = [_megabytes(root), _megabytes(root / "memory"), int(psutil.virtual_memory().total) >> 20]
    return min(limit for limit in limits if limit is not None)


def _machine_cores(root: Path) -> int:
    """Cores of this machine, or of the container that it seems to be."""
    cores = os.cpu_count() or 1
    for name in ("cpuset.cpus.effective", "cpuset/cpuset.effective_cpus", "cpuset/cpuset.cpus"):
        if (root / name).is_file() and (text := (root / name).read_text().strip()):
            return min(cores, sum(_width(part) for part in text.split(",")))
    return cores


def _width(span: str) -> int:
    first, _, last = span.partition("-")
    return int(last or first) - int(first) + 1
