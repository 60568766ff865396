#!/usr/bin/env bash
# run.sh PYTHON: the whole suite. Fast tests first, in two processes; then the real engines one after the other, since
# each of them fills two cores; the summaries are what the exit status says.
set -uo pipefail
python=$1
status=0
echo "── fast tests"
"$python" -m pytest -q -n 2 -m "not engines and not slurm and not apptainer and not typesense and not browser and not slow" || status=1
echo "── slow tests without engines"
"$python" -m pytest -q -n 2 --durations=10 --timeout 900 -m "not engines and (slurm or apptainer or typesense or browser or slow)" || status=1
echo "── tests with the real engines (vLLM, Ray, Verl)"
"$python" -m pytest -q --durations=10 --timeout 1800 -m engines || status=1
exit $status
