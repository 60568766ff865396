"""`#SBATCH` lines. One table of valid names is the single source; a wrong one is told the right ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from stateward.errors import UserError, nearest

#: Long options of sbatch (Slurm 22.05 and later) that make sense in a component of ours. What stateward decides itself
#: (job name, output, array, dependency, signal, requeue) is not among them.
DIRECTIVES = frozenset({
    "account", "acctg-freq", "batch", "begin", "bb", "bbf", "clusters", "comment", "constraint", "contiguous",
    "cores-per-socket", "core-spec", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot",
    "distribution", "exclude", "exclusive", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
    "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "licenses", "mail-type", "mail-user",
    "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "nodefile",
    "nodelist", "nodes", "no-kill", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node",
    "ntasks-per-socket", "overcommit", "oversubscribe", "partition", "power", "prefer", "priority", "profile", "qos",
    "reboot", "reservation", "sockets-per-node", "spread-job", "switches", "thread-spec", "threads-per-core", "time",
    "time-min", "tmp", "uid", "use-min-nodes", "wait-all-nodes", "wckey", "x11",
})  # fmt: skip


def check_directives(names: Mapping[str, Any], *, where: str) -> None:
    """Refuse an unknown directive by name, with the nearest valid one."""
    for name in names:
        if name not in DIRECTIVES:
            raise UserError(f"{where}: {name!r} is not an sbatch directive", do=nearest(name, DIRECTIVES))


def sbatch_lines(directives: Mapping[str, Any]) -> list[str]:
    """``#SBATCH --name=value`` lines; True is a flag, False and None are left out.

    sbatch reads these lines with a shell's rules for quotes: a path with a space or a quote needs them.
    """
    return [
        f"#SBATCH --{name}" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}"
        for name, value in directives.items()
        if value is not None and value is not False
    ]


def seconds_of(time: str) -> int:
    """Seconds of Slurm's time format: ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``."""
    days, _, rest = time.rpartition("-")
    try:
        parts = [int(part) for part in rest.split(":")]
        if days:
            hours, minutes, seconds = (*parts, 0, 0)[:3]
        else:
            hours, minutes, seconds = {1: (0, parts[0], 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
        return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"time {time!r} is not a Slurm time", do="write days-hours:minutes:seconds") from error
