#!/bin/bash

# Parameters
#SBATCH --array=0-2%2
#SBATCH --cpus-per-task=4
#SBATCH --export=ALL
#SBATCH --gres=gpu:h100:1
#SBATCH --job-name=campaign-probe
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --mem=8G
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output='/runs/it'"'"'s; a/chunk-00/%A_%a_0_log.out'
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR2@30
#SBATCH --time=120

# setup
export SLURM_OPEN_MODE=append
export PYTHONNOUSERSITE=1
unset PYTHONPATH

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output '/runs/it'"'"'s; a/chunk-00/%A_%a_%t_log.out' --cpus-per-task=4 --cpu-bind=none PYTHON -u -m stateward.cluster.array_task '/runs/it'"'"'s; a/chunk-00' '/runs/it'"'"'s; a/chunk-00/array-0.json'
