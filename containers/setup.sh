#!/usr/bin/env bash
# setup.sh VENV: the practice environment (CPU builds of torch, vLLM, Ray, Verl) from containers/practice.lock.
#
# Settings, all optional:
#   PYTHON                 the interpreter (3.11 or 3.12); otherwise the first one found
#   STATEWARD_TORCH_INDEX  an index that has the CPU build of torch. Without it, plain `pip install torch` is asked, which
#                          takes a wheel that pip's own configuration points to, and otherwise the registry's
#                          default build: it works too, but is a CUDA build of several GB.
set -euo pipefail
venv=$1
here=$(cd "$(dirname "$0")/.." && pwd)
TORCH=2.13.0
UV=0.13.9

say() { printf 'setup: %s\n' "$*" >&2; }

suits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }
python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3.12 python3; do
        if suits "$candidate"; then python=$candidate; break; fi
    done
fi
if [ -z "$python" ] || ! suits "$python"; then
    say "no Python 3.11 or 3.12 with venv was found (${python:-looked for python3.11, python3.12, python3})"
    say "do: install one (Debian: apt-get install python3.11-venv) or name it: make run PYTHON=/path/to/python3.11"
    exit 2
fi

say "environment in $venv with $("$python" --version)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
py=$venv/bin/python
"$py" -m pip install --quiet --disable-pip-version-check "uv==$UV"

if ! "$py" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '$TORCH')" 2>/dev/null; then
    say "torch $TORCH"
    "$py" -m pip install --quiet --disable-pip-version-check ${STATEWARD_TORCH_INDEX:+--index-url "$STATEWARD_TORCH_INDEX"} \
        --no-deps "torch==$TORCH"
fi
# The lock names every package once, torch excepted, so no resolver runs: Verl's own requirements exclude the
# transformers that this vLLM wants, although the two work together for text models.
say "packages of containers/practice.lock"
# Compiled here, once: otherwise each of a run's processes compiles torch, vLLM and Verl at the same time.
"$py" -m uv pip install --quiet --python "$py" --no-deps --compile-bytecode -r "$here/containers/practice.lock"
"$py" -m uv pip install --quiet --python "$py" --no-deps -e "$here"
