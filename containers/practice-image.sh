#!/usr/bin/env bash
# practice-image.sh [--environment-only]: build the practice image unless it is there, and print its path.
#
# Images lie outside the checkout, named by a hash of what they are made from. With --environment-only the sources of
# stateward itself do not count: tests take the last such image and bind the checkout over the sources in it, so that a
# change of code builds nothing.
#
# Exit status 3: it cannot be built on this machine; the text says why.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${STATEWARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stateward}
python=${PYTHON:-$here/.venv/bin/python}
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") # not resolved: it is its place that makes the environment
cannot() { echo "practice image: $*" >&2; exit 3; }

hash_of() { (cd "$here" && find "$@" -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' -print0 | sort -z | xargs -0 sha256sum) | sha256sum | cut -c 1-16; }
# Of pyproject.toml, what says what is installed; not the settings of the tools.
environment=$({
    hash_of containers/practice.def containers/practice.lock containers/{environment,finish,run,setup}.sh \
        containers/{verify,lock}.py
    sed '/^\[tool\./,$d' "$here/pyproject.toml"
} | sha256sum | cut -c 1-16)
sources=$(hash_of lib jobs configs sbatch containers)
mkdir -p "$cache/images"
image=$cache/images/practice-$environment-$sources.sif
existing() {
    if [ "${1:-}" = --environment-only ]; then
        find "$cache/images" -name "practice-$environment-*.sif" -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d ' ' -f 2-
    elif [ -e "$image" ]; then echo "$image"; fi
}
found=$(existing "$@"); if [ -n "$found" ]; then echo "$found"; exit 0; fi

[ "$(uname -m)" = x86_64 ] || cannot "the locks are for x86_64"
[ "$(id -u)" = 0 ] || cannot "debootstrap needs root; docs/container.md says how to build elsewhere"
for tool in debootstrap mksquashfs; do command -v "$tool" > /dev/null || cannot "$tool is not installed (make system)"; done
apptainer=$("$here/containers/apptainer.sh") || cannot "no apptainer; see above"
exec 9> "$cache/images/practice.lock"
flock 9 # another call may be building it
found=$(existing "$@"); if [ -n "$found" ]; then echo "$found"; exit 0; fi

began=$SECONDS
work=$(mktemp -d "$cache/build-XXXXXX")
cleanup() { rm -rf "$work" "${memory:-}"; }
trap cleanup EXIT
trap 'exit 143' TERM INT
# A build writes some 60,000 small files, and dpkg waits for the disk after each; in memory that is minutes less.
export APPTAINER_TMPDIR=$work
free=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
# Not where device files or programs are forbidden, which debootstrap makes and runs.
if [ "$free" -ge 12 ] && ! findmnt -no OPTIONS /dev/shm | grep -qE 'nodev|noexec' && [ "$(df --output=avail -BG /dev/shm 2> /dev/null | tail -n 1 | tr -dc 0-9)" -ge 10 ]; then
    memory=$(mktemp -d /dev/shm/stateward-build-XXXXXX)
    export APPTAINER_TMPDIR=$memory
fi

# What setup.sh took: uv with its cache, and the wheel of torch's CPU build by pip's own configuration.
torch=$(sed -n 's/^TORCH=//p' "$here/containers/setup.sh")
mkdir -p "$cache/wheels" "$work/cache"
if ! ls "$cache/wheels/torch-$torch"* > /dev/null 2>&1; then
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$cache/wheels" \
        ${STATEWARD_TORCH_INDEX:+--index-url "$STATEWARD_TORCH_INDEX"} "torch==$torch" >&2
fi
uv_cache=$("$python" -m uv cache dir)
mkdir -p "$uv_cache"
cp "$(dirname "$python")/uv" "$work/cache/uv"

certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ -r "$certificates" ] || certificates=

commit=$(git -C "$here" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
[ -z "$(git -C "$here" status --porcelain -- lib jobs configs containers pyproject.toml 2> /dev/null)" ] || commit=$commit-changed
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/pyproject.toml")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2> /dev/null | grep -m1 '/debian/$' || true)
[ -n "$mirror" ] || cannot "apt knows no Debian mirror here (apt-get update first)"

# A checkout holds more than the image may: only these go in.
mkdir "$work/context"
(cd "$here" && tar -c --exclude=__pycache__ --exclude='*.egg-info' pyproject.toml README.md LICENSE lib jobs configs containers sbatch) | tar -x -C "$work/context"
cd "$work/context"
# --notest: the last step of %post has just proved the same.
"$python" containers/full_userns.py "$apptainer" --quiet build --notest --mksquashfs-args "-comp zstd -Xcompression-level 3" \
    --bind "$cache/wheels:/cache/wheels:ro" --bind "$uv_cache:/cache/uv-cache" --bind "$work/cache/uv:/cache/uv:ro" \
    ${certificates:+--bind "$certificates:/cache/ca.pem:ro"} \
    --build-arg "COMMIT=$commit" --build-arg "VERSION=$version" --build-arg "INPUTS=$environment-$sources" \
    --build-arg "MIRROR=$mirror" "$work/practice.sif" containers/practice.def 2>&1 | { grep -vE '^(I: |INFO:|\+ )' || true; } >&2
mv "$work/practice.sif" "$image"
printf '{"seconds": %d, "bytes": %d}\n' $((SECONDS - began)) "$(stat -c %s "$image")" > "${image%.sif}.json"
# The last three are kept; each is more than a gigabyte.
ls -t "$cache"/images/practice-*.sif | tail -n +4 | while read -r old; do rm -f "$old" "${old%.sif}.json"; done
echo "practice image: built in $((SECONDS - began)) s" >&2
echo "$image"
