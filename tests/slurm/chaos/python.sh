#!/bin/bash
# In the place of python in the training job of a campaign without Ray: rank 0 runs the driver, the others wait for it.
real=@PYTHON@
if [ "${1:-} ${2:-}" != "-m stateward.cluster.ray_cluster" ]; then exec "$real" "$@"; fi
shared=$4
while [ "$1" != -- ]; do shift; done
shift
start=$shared/start-${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}-${SLURM_RESTART_COUNT:-0}
if [ "$SLURM_PROCID" = 0 ]; then
    mkdir -p "$start"
    "$@" & driver=$!
    trap 'kill -TERM $driver; wait $driver; exit 143' TERM
    wait $driver
    status=$?
    touch "$start/ended"
    exit $status
fi
trap 'exit 143' TERM
until [ -e "$start/ended" ]; do sleep 0.2 & wait $!; done
