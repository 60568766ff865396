"""Batch scripts: the text that sbatch is given, for plain jobs and for the heterogeneous training job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateward.cluster.directives import role_directives, sbatch_lines
from stateward.cluster.profile import ClusterProfile, Role


def plain_job(
    command: Sequence[str], *, profile: ClusterProfile, role: Role, name: str, log: Path, dependency: str = ""
) -> str:
    """A job that runs one command on one node."""
    head = _own(name, log, dependency) | role_directives(profile, role)
    return "\n".join(
        [
            "#!/bin/bash",
            *sbatch_lines(head),
            "set -euo pipefail",
            *_environment(profile),
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def heterogeneous_job(
    command: Sequence[str], *, profile: ClusterProfile, name: str, log: Path, dependency: str = ""
) -> str:
    """The training job: component 0 is the service node (Ray head, driver), component 1 the GPU nodes (Ray workers).

    Every directive stands in every component: what a component leaves out is not inherited, and a component without a
    partition pends in the default one for ever. One srun over both components is one step: rank 0 is the service node
    and the ranks go on over the GPU nodes.
    """
    signal = {"signal": f"B:USR1@{profile.signal_seconds}", "requeue": True, "open-mode": "append"}
    lines = ["#!/bin/bash"]
    lines += ["# Component 0: the service node.", *sbatch_lines(_own(name, log, dependency) | signal)]
    lines += [*sbatch_lines(role_directives(profile, profile.service)), "#SBATCH hetjob"]
    lines += ["# Component 1: the GPU nodes.", *sbatch_lines(_own(name, log, dependency) | signal)]
    lines += [*sbatch_lines(role_directives(profile, profile.train)), "set -uo pipefail", *_environment(profile)]
    return "\n".join(lines) + "\n" + step_over_both(command, max_restarts=profile.max_restarts)


def step_over_both(command: Sequence[str], *, max_restarts: int) -> str:
    """The body: the step in the background, so that the shell can hear USR1, and a requeue with a bound.

    Only this shell is signalled (``B:``). The step is ended with SIGTERM, never USR1, which NCCL may catch.
    """
    return f"""\
MAX_RESTARTS={max_restarts}
again=no
end_step() {{
    # The time limit or a preemption is near: end the step, then come back from the last verified checkpoint.
    again=yes
    echo "$(date +%FT%T) signal: ending the step to requeue"
    kill -TERM "$step" 2>/dev/null
}}
trap end_step USR1 TERM
srun --het-group=0,1 --kill-on-bad-exit=1 --export=ALL {shlex.join(command)} &
step=$!
while :; do
    wait "$step"
    status=$?
    # wait also returns when a signal came; the step is over only when it is gone.
    kill -0 "$step" 2>/dev/null || break
done
if [ "$again" = yes ] && [ "$status" != 0 ]; then
    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt "$MAX_RESTARTS" ]; then
        echo "$(date +%FT%T) requeue after ${{SLURM_RESTART_COUNT:-0}} restarts"
        scontrol requeue "$SLURM_JOB_ID"
        # Slurm ends this shell now; waiting keeps the job from ending by itself first.
        trap '' TERM
        sleep infinity & wait
    fi
    echo "$(date +%FT%T) not requeued: $MAX_RESTARTS restarts are the bound"
fi
exit "$status"
"""


def _own(name: str, log: Path, dependency: str) -> dict[str, Any]:
    """What stateward decides itself for each of its jobs."""
    out: dict[str, Any] = {"job-name": name, "output": log}
    if dependency:
        # Without this a job whose parent failed pends for ever.
        out |= {"dependency": dependency, "kill-on-invalid-dep": "yes"}
    return out


def _environment(profile: ClusterProfile) -> list[str]:
    return [
        *(f"module load {module}" for module in profile.modules),
        *profile.setup,
        # The user's own packages must not shadow the environment's.
        "export PYTHONNOUSERSITE=1",
        "unset PYTHONPATH",
    ]
