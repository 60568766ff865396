#!/bin/bash
#SBATCH --job-name=m
#SBATCH --output=logs/m-%j.log
#SBATCH --dependency=afterok:12
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=1:00:00
set -euo pipefail
export PYTHONNOUSERSITE=1
unset PYTHONPATH
module load cuda/13
exec python jobs/merge.py --run-dir 'runs/it'"'"'s; here'
