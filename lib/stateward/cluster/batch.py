"""Batch scripts: the text that sbatch is given, for plain jobs and for the heterogeneous training job."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateward.cluster.container import RUN_DIR, launcher, launcher_lines, service_binds
from stateward.cluster.directives import sbatch_lines
from stateward.cluster.profile import ClusterProfile, Role, role_directives
from stateward.cluster.rendezvous import RENDEZVOUS
from stateward.config.simulator import SIMULATOR

#: Options of every srun inside a training job: each task may use all memory and all cores of its node's allocation.
_WHOLE = "--mem=0 --cpu-bind=none"

#: The end of the training job. Devices must not idle until the time limit because a question was lost.
_REQUEUE = """\
# A busy controller may close the connection under a question: it is asked again.
ask() {
    for pause in 1 2 4 8 16 32; do "$@" && return; sleep "$pause"; done
    "$@"
}
if [ "$again" = yes ] && [ "$status" != 0 ]; then
    # A job that was cancelled, or that Slurm itself requeues at a preemption, is not RUNNING any more.
    state=$(ask squeue --noheader --jobs "$SLURM_JOB_ID" --format %T)
    if [ "${state%%[!A-Z]*}" = RUNNING ] && [ "${SLURM_RESTART_COUNT:-0}" -ge "$MAX_RESTARTS" ]; then
        echo "$(date +%FT%T) not requeued: $MAX_RESTARTS restarts are the bound"
    elif [ "${state%%[!A-Z]*}" = RUNNING ]; then
        echo "$(date +%FT%T) requeue after ${SLURM_RESTART_COUNT:-0} restarts"
        trap 'exit "$status"' TERM
        if ask scontrol requeue "$SLURM_JOB_ID"; then
            # Slurm ends this shell now; waiting keeps the job from ending by itself first.
            sleep infinity &
            wait
        fi
        echo "$(date +%FT%T) scontrol did not put the job back: submit it again, it goes on where it stopped"
    fi
fi
"""


def plain_job(
    command: Sequence[str],
    *,
    profile: ClusterProfile,
    role: Role,
    name: str,
    log: Path,
    dependency: str = "",
    binds: Sequence[Path] = (),
) -> str:
    """A job that runs one command on one node. `binds`: folders that it needs, mounted if the profile has an image."""
    lines = ["#!/bin/bash", *sbatch_lines(_own(name, log, dependency) | role_directives(profile, role))]
    lines += ["set -euo pipefail", *environment_lines(profile)]
    if profile.container.image:
        text = launcher(profile.container, scratch=profile.scratch, program=(), binds=binds)
        lines += [f"set -- {shlex.join(command)}", *text.splitlines()[1:]]
    else:
        lines += [f"exec {shlex.join(command)}"]
    return "\n".join(lines) + "\n"


def training_job(
    *,
    profile: ClusterProfile,
    name: str,
    log: Path | str,
    config: str,
    run_dir: str,
    python: str = "python",
    home: str = ".",
    overrides: Sequence[str] = (),
    dependency: str = "",
    binds: Sequence[Path] = (),
    simulator_seconds: float = 0.0,
) -> str:
    """The heterogeneous training job: component 0 is the service node (Ray head, driver), component 1 the GPU nodes.

    Where the profile has the role, component 2 is the node of the simulator's model: a step of its own, since the
    other step's ranks are Ray's, and a model that loads for longer than Ray has no part in its start.

    Every directive stands in every component: what a component leaves out is not inherited, and a component without a
    partition pends in the default one for ever. One srun over both components is one step: rank 0 is the service node
    and the ranks go on over the GPU nodes.

    Args:
        log: of the whole job; ``%j`` is its id. home: folder that holds jobs/.
        config, run_dir, python: defaults of the variables of the same names, which sbatch's environment overrides.
        overrides: of the configuration; the script's own arguments come after them.
        binds: folders that it needs besides the run directory, mounted where the profile has an image.
        simulator_seconds: that the simulator's model may take to load; the job has as much longer to be ready.
    """
    own = _own(name, log, dependency)
    own |= {"signal": f"B:USR1@{profile.signal_seconds}", "requeue": True, "open-mode": "append"}
    service, workers = role_directives(profile, profile.service), role_directives(profile, profile.train)
    fixed = f" {shlex.join(overrides)}" if overrides else ""
    image = profile.container.image
    scratch = "/tmp" if image else profile.scratch  # of the image, where it is a private folder of the scratch
    lines = [
        "#!/bin/bash",
        "# Train: one heterogeneous job. Rank 0 is Ray's head and the driver, the other ranks are Ray's workers.",
        "# Arguments are configuration overrides: sbatch THIS_FILE train.steps=3",
        "",
        "# Component 0: the service node. A directive that is left out here or below is not inherited.",
        *sbatch_lines(own | service),
        "#SBATCH hetjob",
        "# Component 1: the GPU nodes.",
        *sbatch_lines(own | workers),
        *_simulator_component(profile, own),
        "",
        "set -euo pipefail",
        "export STATEWARD_JOB_BEGAN=$(date +%s.%N)",
        *environment_lines(profile),
        "set +e  # from here on each status is looked at",
        f"PYTHON=${{PYTHON:-{shlex.quote(python)}}}" if not image else "",
        f"CONFIG=${{CONFIG:-{shlex.quote(config)}}}",
        f"RUN_DIR=${{RUN_DIR:-{shlex.quote(run_dir)}}}",
        f"MAX_RESTARTS=${{MAX_RESTARTS:-{profile.max_restarts}}}",
        f"cd {shlex.quote(home)} || exit 2" if home != "." else "",
        *(_python_of_image(profile, binds) if image else ()),
        "",
        "# Near the time limit or before a preemption only this shell is signalled. It ends the step with SIGTERM",
        "# (NCCL may catch USR1) and comes back from the last verified checkpoint.",
        "again=no",
        "end_step() {",
        "    again=yes",
        '    echo "$(date +%FT%T) signal: ending the step to requeue"',
        "    # Through Slurm: srun itself would answer SIGTERM by killing its tasks before they can clean up.",
        '    scancel --signal=TERM "$SLURM_JOB_ID" || kill -TERM "$step"',
        "}",
        "trap end_step USR1 TERM",
        "# Component 0's number of CPUs, which srun would take for a task of any component.",
        "unset SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK",
        *_simulator_step(profile, scratch, fixed),
        "# --wait: ranks end together, so one that is missing a minute later is gone with its node. Slurm tells srun",
        "# nothing of a node that was lost and came back at once, and it would wait for ever.",
        "# --mem=0: all that each component was given; srun would take component 0's --mem for every node.",
        "# --cpu-bind=none: a site may bind each task to one core, and the rank's processes are the whole node's.",
        f"srun --het-group=0,1 {_WHOLE} --kill-on-bad-exit=1 --wait=60 --export=ALL \\",
        '    "$PYTHON" -m stateward.cluster.ray_cluster --shared "$RUN_DIR/train" \\',
        f"    --interface {shlex.quote(profile.network_interface)} --scratch {shlex.quote(scratch)} \\",
        f"    --deadline {profile.ready_seconds + math.ceil(simulator_seconds)} --preflight{_typesense(profile)} -- \\",
        f'    "$PYTHON" jobs/train.py --config "$CONFIG" --run-dir "$RUN_DIR"{fixed} "$@" &',
        "step=$!",
        "while :; do",
        '    wait "$step"',
        "    status=$?",
        "    # wait also returns when a signal came; the step is over only when it is gone.",
        '    kill -0 "$step" 2>/dev/null || break',
        "done",
        *_simulator_end(profile),
        "# A start that lost a node or a process is worth another; one that would only repeat itself is not.",
        'if [ "$again" = no ] && [ "$status" != 0 ]; then',
        '    "$PYTHON" -m stateward.cluster.retry --shared "$RUN_DIR/train" --status "$status" \\',
        '        --progress "checkpoints/*/VERIFIED" --told plan/driver_result.json && again=yes',
        "fi",
        *_REQUEUE.splitlines(),
        'exit "$status"',
    ]
    return "\n".join(line for i, line in enumerate(lines) if line or lines[i - 1]) + "\n"


def _simulator_component(profile: ClusterProfile, own: dict[str, Any]) -> list[str]:
    if profile.simulator is None:
        return []
    lines = sbatch_lines(own | role_directives(profile, profile.simulator))
    return ["#SBATCH hetjob", "# Component 2: the node that serves the simulated user's and the judge's model.", *lines]


def _simulator_step(profile: ClusterProfile, scratch: str, fixed: str) -> list[str]:
    if profile.simulator is None:
        return []
    rank = 1 + profile.train.nodes  # after those of the other step
    return [
        "# The simulator's model is a step of its own. It leaves address and key in a file of this start, mode 0600,",
        "# for which the preflight of the other step waits. If it is lost, that step ends too: told by a file, or by a",
        "# signal where nobody was left to write one.",
        f'export {SIMULATOR}="$(readlink -m "$RUN_DIR")/train/{RENDEZVOUS}'
        '/$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}/simulator.json"',
        "(",
        f"    srun --het-group=2 {_WHOLE} --kill-on-bad-exit=1 --export=ALL \\",
        f'        "$PYTHON" -m stateward.cluster.simulator_node --config "$CONFIG" --rank {rank} \\',
        f"        --interface {shlex.quote(profile.network_interface)} --scratch {shlex.quote(scratch)} --{fixed} \\",
        '        "$@" ||',
        "    {",
        "        said=$?",
        f'        [ -e "${{{SIMULATOR}%/*}}/failed-{rank}.json" ] || scancel --signal=TERM "$SLURM_JOB_ID"',
        '        exit "$said"',
        "    }",
        ") &",
        "simulator=$!",
    ]


def _simulator_end(profile: ClusterProfile) -> list[str]:
    if profile.simulator is None:
        return []
    return [
        "# What is left is the simulator; it may be ending already. One that Slurm has yet to start hears nothing and",
        "# is told again. A mistake in what it was asked is the job's.",
        'while kill -0 "$simulator" 2>/dev/null; do',
        '    scancel --signal=TERM "$SLURM_JOB_ID"',
        '    timeout 5 tail --pid="$simulator" -f /dev/null',
        "done",
        'wait "$simulator"',
        "[ $? != 2 ] || status=2",
    ]


def _typesense(profile: ClusterProfile) -> str:
    return f" --typesense {shlex.quote(profile.typesense)}" if profile.typesense else ""


def _python_of_image(profile: ClusterProfile, binds: Sequence[Path]) -> list[str]:
    """Lines that make PYTHON a launcher of the image's Python, in the run directory, where every node sees it."""
    text = launcher(profile.container, scratch=profile.scratch, binds=[*binds, *service_binds(profile)])
    return [
        "",
        "# Python of the image. The ranks call it, and what they start in the image calls it again.",
        'RUN_DIR=$(readlink -m "$RUN_DIR")',
        f'export {RUN_DIR}="$RUN_DIR"',
        'PYTHON="$RUN_DIR/train/in-image-$SLURM_JOB_ID.sh"',
        'mkdir -p "$RUN_DIR/train" || exit 2',
        *launcher_lines(text, '"$PYTHON"'),
    ]


def _own(name: str, log: Path | str, dependency: str) -> dict[str, Any]:
    """What stateward decides itself for each of its jobs."""
    out: dict[str, Any] = {"job-name": name, "output": log}
    if dependency:
        # Without this a job whose parent failed pends for ever.
        out |= {"dependency": dependency, "kill-on-invalid-dep": "yes"}
    return out


def environment_lines(profile: ClusterProfile) -> list[str]:
    """Shell lines before any of our commands: modules, the profile's own set-up, and no packages of the user's home."""
    return [
        "export PYTHONNOUSERSITE=1",
        "unset PYTHONPATH",
        *(f"module load {shlex.quote(module)}" for module in profile.modules),
        *profile.setup,
    ]
