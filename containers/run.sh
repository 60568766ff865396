#!/usr/bin/env bash
# run.sh STAGE|COMMAND ARGUMENTS...: what `apptainer run IMAGE` does. Stages are named without a path.
set -euo pipefail
source=/opt/stateward/src
case ${1:-} in
    probe | curate | train | merge | evaluate | report | pipeline | status)
        stage=$1
        shift
        exec python "$source/jobs/$stage.py" "$@" ;;
    "")
        echo "stages: probe curate train merge evaluate report pipeline status; --help after one says more" >&2
        exit 2 ;;
    *) exec "$@" ;;
esac
