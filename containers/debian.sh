#!/usr/bin/env bash
# Debian packages for the slow tests: a browser, what a one-machine Slurm needs, and what builds an image; and an apptainer,
# which Debian 12 does not package. Asked for by `make test`.
# Elsewhere than as root on a Debian-like system nothing is installed, and the tests that need them skip, saying why.
set -euo pipefail
wanted=(chromium munge slurmctld slurmd slurm-client slurmdbd mariadb-server-core mariadb-client-core
    busybox-static debootstrap patchelf squashfs-tools)
have() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
missing=()
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "system: no apt here; tests that need ${wanted[*]} will be skipped where it is absent" >&2
    exit 0
fi
for package in "${wanted[@]}"; do have "$package" || missing+=("$package"); done
if [ ${#missing[@]} != 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "system: not root; tests that need ${missing[*]} will be skipped. do: sudo apt-get install ${missing[*]}" >&2
        exit 0
    fi
    echo "system: installing ${missing[*]}" >&2
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null
fi
"$(dirname "$0")/apptainer.sh" >/dev/null || echo "system: tests of the image will be skipped" >&2
