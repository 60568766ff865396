#!/usr/bin/env bash
# environment.sh EXTRA LOCK: the Python environment of an image in /opt/stateward, from a lock. Both images are made by
# these steps, inside the image (%post).
#
# What is bound into the build at /cache is used: uv with its cache and wheels, for the practice image, and certificates.
set -euo pipefail
extra=$1 lock=$2
home=/opt/stateward
source=$home/src
export PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 UV_NO_CONFIG=1 UV_LINK_MODE=copy UV_NO_PYTHON_DOWNLOADS=1 UV_NO_PROGRESS=1

# A site whose network has a certificate of its own: the build trusts whom the building machine trusts.
[ ! -s /cache/ca.pem ] || export SSL_CERT_FILE=/cache/ca.pem

say() { printf 'environment: %s\n' "$*" >&2; }

python3 -m venv "$home"
python=$home/bin/python
besides=()
[ "$extra" = practice ] && besides=("torch==$(sed -n 's/^TORCH=//p' "$source/containers/setup.sh")")
say "the lock against pyproject.toml"
"$python" "$source/containers/lock.py" check "$extra" "$lock" "${besides[@]}"

if [ -x /cache/uv ]; then
    uv=/cache/uv
    export UV_CACHE_DIR=/cache/uv-cache
else
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$source/containers/tools.lock"
    uv=$home/bin/uv
    export UV_NO_CACHE=1
fi
install() { "$uv" pip install --quiet --python "$python" --no-deps "$@"; }

say "packages of $(basename "$lock")"
if [ "$extra" = practice ]; then
    # torch's CPU build comes from elsewhere than the registry (containers/setup.sh).
    install --no-index --find-links /cache/wheels "${besides[@]}"
    # What `make setup` installed lies in uv's cache, for the same Python at least; then the registry is not asked.
    install --offline -r "$lock" || install -r "$lock"
    install --offline --editable "$source" || install --editable "$source"
else
    "$python" "$source/containers/lock.py" wheels "$lock" > /tmp/wheels.txt
    "$python" "$source/containers/lock.py" sources "$lock" > /tmp/sources.txt
    install --require-hashes --no-build -r /tmp/wheels.txt
    # Against the torch just installed and the CUDA of this image; see COMPILED in lock.py. One package at a time: each
    # starts JOBS compilers of 5 GB by itself.
    say "compiling: $(sed -n 's/==.*//p' /tmp/sources.txt | paste -sd ' ')"
    UV_CONCURRENT_BUILDS=1 FLASH_ATTENTION_FORCE_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE \
        install --require-hashes --no-build-isolation -r /tmp/sources.txt
    install --no-build-isolation --editable "$source"
    rm /tmp/wheels.txt /tmp/sources.txt
fi

say "leaving out what no job reads"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Tests of other packages; some are imported by their own package (numpy.testing is not named tests), so only these.
for name in numpy scipy pandas matplotlib pyarrow sympy networkx numba torch/testing/_internal/test_module; do
    [ -d "$packages/$name" ] && find "$packages/$name" -depth -type d -name tests -exec rm -rf {} +
done
find "$packages" -name '*.a' -size +1M -delete
say "compiling bytecode"
# The image cannot be written at run time, and without bytecode every process would compile torch again. Some packages hold
# files that are no valid Python (templates, tests of parsers): those stay as they are, and the status says no more.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages" "$source/lib" > /dev/null || true
say "$(du -sh "$home" | cut -f 1) in $home"
