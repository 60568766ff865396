#!/bin/bash
# Evaluate one policy on one node of 8 GPUs: LABEL=base, or LABEL=tuned once the merge is done. Calling it again runs only
# what is missing. Many nodes at a time: python jobs/evaluate.py --array --cluster NAME --label LABEL.
#SBATCH --job-name=stateward-evaluate
#SBATCH --output=stateward-evaluate-%j.log
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --gres=gpu:h100:8
#SBATCH --time=12:00:00

set -euo pipefail
export PYTHONNOUSERSITE=1
unset PYTHONPATH
source .venv/bin/activate
CONFIG=${CONFIG:-configs/q38_full.yaml}
RUN_DIR=${RUN_DIR:-runs/q38_full}
exec python jobs/evaluate.py --config "$CONFIG" --run-dir "$RUN_DIR" --label "${LABEL:-base}" "$@"
