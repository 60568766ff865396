#!/usr/bin/env bash
# run.sh PYTHON: the whole suite. Fast tests first, in two processes; then the slow ones; then the real engines one after
# the other, since each of them fills two cores.
#
# A group's failed tests run once more, alone: on a machine that others use too, a deadline can pass although nothing is
# wrong. What fails twice fails; what passes the second time is named.
set -uo pipefail
python=$1
status=0

group() {
    local title=$1; shift
    echo "── $title"
    "$python" -m pytest -q --durations=10 -o cache_dir=".pytest_cache/${title// /-}" "$@"
    local first=$?
    [ $first = 0 ] && return
    if [ $first != 1 ]; then status=1; return; fi
    echo "── $title: the failed tests once more, alone"
    "$python" -m pytest -q -o cache_dir=".pytest_cache/${title// /-}" "$@" -n 0 --last-failed || { status=1; return; }
    echo "── $title: passed the second time; see above for which"
}

group "fast tests" -n 2 -m "not engines and not slurm and not apptainer and not typesense and not browser and not slow"
group "slow tests" -n 2 --timeout 900 -m "not engines and (slurm or apptainer or typesense or browser or slow)"
group "engine tests" -n 0 --timeout 1800 -m "engines and not chaos"
exit $status
