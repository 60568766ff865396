#!/bin/bash
# Merge: the trained shards into one checkpoint. Chain it behind a training job by hand:
#   sbatch --dependency=afterok:JOBID --kill-on-invalid-dep=yes sbatch/merge.sh
#SBATCH --job-name=stateward-merge
#SBATCH --output=stateward-merge-%j.log
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=256G
#SBATCH --time=4:00:00

set -euo pipefail
export PYTHONNOUSERSITE=1
unset PYTHONPATH
source .venv/bin/activate
CONFIG=${CONFIG:-configs/q38_full.yaml}
RUN_DIR=${RUN_DIR:-runs/q38_full}
exec python jobs/merge.py --config "$CONFIG" --run-dir "$RUN_DIR" "$@"
