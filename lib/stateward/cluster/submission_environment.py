"""What a job finds in its environment: the submitter's variables, without those of an allocation or a shell's own.

Inside `salloc`, or most interactive sessions of a web portal, ``SLURM_*`` describe that allocation: its memory per CPU,
its devices, its cores. sbatch and the srun of the job would take them for the job's. ``SBATCH_*`` are options that the
rendered script does not show.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

#: How Slurm's programs find the cluster; nothing of an allocation.
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
_PREFIXES = ("SLURM_", "SBATCH_", "SALLOC_")
#: Devices of the allocation, and what a training script takes from a person who calls sbatch.
_NAMES = frozenset({
    "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "PYTHON", "CONFIG", "RUN_DIR", "MAX_RESTARTS",
})  # fmt: skip


def set_aside(env: Mapping[str, str]) -> list[str]:
    """Names of the variables that do not reach jobs, sorted."""
    return sorted(n for n in env if n in _NAMES or (n.startswith(_PREFIXES) and n not in _KEPT))


def job_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """`env`, or this process's environment, as jobs get it. Says once, on standard error, what was set aside."""
    env = os.environ if env is None else env
    left = set_aside(env)
    if left:
        _say(summary(left))
    return {name: value for name, value in env.items() if name not in left}


def summary(names: list[str]) -> str:
    """One line: single variables by name, those of a prefix counted."""
    counts = {p: sum(n.startswith(p) for n in names) for p in _PREFIXES}
    parts = [f"{number} {prefix}*" for prefix, number in counts.items() if number]
    parts += [name for name in names if name in _NAMES]
    return f"set aside, not for jobs: {', '.join(parts)} (of this shell or its allocation)"


@functools.cache
def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
