#!/usr/bin/env bash
# image.sh TARGET.sif [BUILD OPTIONS]: build the cluster's image. Options go to `apptainer build`, such as --fakeroot where
# you are not root, or --build-arg BASE=nvidia/cuda@sha256:... for the digest of the base.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
target=$(readlink -m "$1")
shift
apptainer=$("$here/containers/apptainer.sh")
[ -x "$here/.venv/bin/python" ] && python=$here/.venv/bin/python || python=python3
"$python" "$here/containers/lock.py" check cluster "$here/containers/requirements.lock"
commit=$(git -C "$here" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
[ -z "$(git -C "$here" status --porcelain -- lib jobs configs containers pyproject.toml 2> /dev/null)" ] || commit=$commit-changed
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/pyproject.toml")
inputs=$(cat "$here/containers/apptainer.def" "$here/containers/requirements.lock" | sha256sum | cut -c 1-16)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
# A checkout holds more than the image may: only these go in.
(cd "$here" && tar -c --exclude=__pycache__ --exclude='*.egg-info' pyproject.toml README.md LICENSE lib jobs configs \
    containers sbatch) | tar -x -C "$context"
cd "$context"
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ -r "$certificates" ] || certificates=
"$apptainer" build ${certificates:+--bind "$certificates:/cache/ca.pem:ro"} --build-arg "COMMIT=$commit" \
    --build-arg "VERSION=$version" --build-arg "INPUTS=$inputs" "$@" "$target" containers/apptainer.def
