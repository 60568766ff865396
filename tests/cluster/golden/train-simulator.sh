#!/bin/bash
# Train: one heterogeneous job. Rank 0 is Ray's head and the driver, the other ranks are Ray's workers.
# Arguments are configuration overrides: sbatch THIS_FILE train.steps=3

# Component 0: the service node. A directive that is left out here or below is not inherited.
#SBATCH --job-name=stateward-train
#SBATCH --output=stateward-train-%j.log
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=128G
#SBATCH --time=2-00:00:00
#SBATCH hetjob
# Component 1: the GPU nodes.
#SBATCH --job-name=stateward-train
#SBATCH --output=stateward-train-%j.log
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=96
#SBATCH --mem=0
#SBATCH --time=2-00:00:00
#SBATCH --gres=gpu:h100:8
#SBATCH --exclusive
#SBATCH hetjob
# Component 2: the node that serves the simulated user's and the judge's model.
#SBATCH --job-name=stateward-train
#SBATCH --output=stateward-train-%j.log
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=2-00:00:00
#SBATCH --gres=gpu:h100:4

set -euo pipefail
export STATEWARD_JOB_BEGAN=$(date +%s.%N)
export PYTHONNOUSERSITE=1
unset PYTHONPATH
source .venv/bin/activate
set +e  # from here on each status is looked at
PYTHON=${PYTHON:-python}
CONFIG=${CONFIG:-configs/q38_full.yaml}
RUN_DIR=${RUN_DIR:-runs/q38_full}
MAX_RESTARTS=${MAX_RESTARTS:-10}

# Near the time limit or before a preemption only this shell is signalled. It ends the step with SIGTERM
# (NCCL may catch USR1) and comes back from the last verified checkpoint.
again=no
end_step() {
    again=yes
    echo "$(date +%FT%T) signal: ending the step to requeue"
    # Through Slurm: srun itself would answer SIGTERM by killing its tasks before they can clean up.
    scancel --signal=TERM "$SLURM_JOB_ID" || kill -TERM "$step"
}
trap end_step USR1 TERM
# Component 0's number of CPUs, which srun would take for a task of any component.
unset SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK
# The simulator's model is a step of its own. It leaves address and key in a file of this start, mode 0600,
# for which the preflight of the other step waits. If it is lost, that step ends too: told by a file, or by a
# signal where nobody was left to write one.
export STATEWARD_SIMULATOR="$(readlink -m "$RUN_DIR")/train/rendezvous/$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}/simulator.json"
(
    srun --het-group=2 --mem=0 --cpu-bind=none --kill-on-bad-exit=1 --export=ALL \
        "$PYTHON" -m stateward.cluster.simulator_node --config "$CONFIG" --rank 4 \
        --interface '' --scratch /tmp -- \
        "$@" ||
    {
        said=$?
        [ -e "${STATEWARD_SIMULATOR%/*}/failed-4.json" ] || scancel --signal=TERM "$SLURM_JOB_ID"
        exit "$said"
    }
) &
simulator=$!
# --wait: ranks end together, so one that is missing a minute later is gone with its node. Slurm tells srun
# nothing of a node that was lost and came back at once, and it would wait for ever.
# --mem=0: all that each component was given; srun would take component 0's --mem for every node.
# --cpu-bind=none: a site may bind each task to one core, and the rank's processes are the whole node's.
srun --het-group=0,1 --mem=0 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --export=ALL \
    "$PYTHON" -m stateward.cluster.ray_cluster --shared "$RUN_DIR/train" \
    --interface '' --scratch /tmp \
    --deadline 2400 --preflight -- \
    "$PYTHON" jobs/train.py --config "$CONFIG" --run-dir "$RUN_DIR" "$@" &
step=$!
while :; do
    wait "$step"
    status=$?
    # wait also returns when a signal came; the step is over only when it is gone.
    kill -0 "$step" 2>/dev/null || break
done
# What is left is the simulator; it may be ending already. One that Slurm has yet to start hears nothing and
# is told again. A mistake in what it was asked is the job's.
while kill -0 "$simulator" 2>/dev/null; do
    scancel --signal=TERM "$SLURM_JOB_ID"
    timeout 5 tail --pid="$simulator" -f /dev/null
done
wait "$simulator"
[ $? != 2 ] || status=2
# A start that lost a node or a process is worth another; one that would only repeat itself is not.
if [ "$again" = no ] && [ "$status" != 0 ]; then
    "$PYTHON" -m stateward.cluster.retry --shared "$RUN_DIR/train" --status "$status" \
        --progress "checkpoints/*/VERIFIED" --told plan/driver_result.json && again=yes
fi
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
exit "$status"
