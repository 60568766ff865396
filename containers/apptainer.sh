#!/usr/bin/env bash
# apptainer.sh: print the path of an apptainer of this machine; on Debian, fetch one where there is none.
#
# Debian 12 does not package it, and the package of unstable wants a newer C library than the system's. So both are
# unpacked, installed nowhere, into a folder of their own outside the checkout, and the two programs are told to use the
# library beside them. No setuid program is made: containers run by user namespaces, or as root.
#
# Needs as root: patchelf (containers/debian.sh installs it). Exit status 3: it is not to be had here; the text says why.
set -euo pipefail
cache=${STATEWARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stateward}
home=$cache/apptainer

if found=$(command -v apptainer); then echo "$found"; exit 0; fi
if [ -x "$home/usr/bin/apptainer" ]; then echo "$home/usr/bin/apptainer"; exit 0; fi
for tool in apt-get dpkg-deb patchelf; do
    command -v "$tool" >/dev/null || { echo "apptainer: not on PATH, and $tool, which fetches it, is not either" >&2; exit 3; }
done

mkdir -p "$cache"
exec 9>"$cache/apptainer.lock"
flock 9 # another call may be fetching it
if [ -x "$home/usr/bin/apptainer" ]; then echo "$home/usr/bin/apptainer"; exit 0; fi
echo "apptainer: fetching it into $home" >&2
work=$(mktemp -d "$cache/apptainer-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/debs" "$work/root"
# The mirror that this machine already uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/$' || true)
if [ -z "$mirror" ]; then echo "apptainer: apt knows no Debian mirror here (apt-get update first)" >&2; exit 3; fi
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" > "$work/sources.list"
apart=(-o Dir::State::Lists="$work/lists" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::SourceList="$work/sources.list"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o Acquire::Languages=none)
if ! { apt-get "${apart[@]}" -qq update && (cd "$work/debs" && apt-get "${apart[@]}" -qq download apptainer libc6); } >&2; then
    echo "apptainer: Debian's unstable packages could not be fetched from $mirror" >&2
    exit 3
fi
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done

# It looks for its settings beside itself: usr/bin → usr/etc; its starter, two levels deeper, → usr/lib/etc.
for folder in etc var; do
    rm -rf "$work/root/usr/$folder"
    mv "$work/root/$folder" "$work/root/usr/$folder"
    ln -sfn "../$folder" "$work/root/usr/lib/$folder"
done
rm -rf "$home"
mv "$work/root" "$home"
library=$home/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
for program in "$home/usr/bin/apptainer" "$library/apptainer/bin/starter"; do
    patchelf --set-interpreter "$library/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$library" "$program"
done
rm -rf "$home"/usr/share/{doc,man,locale} "$library/gconv"
"$home/usr/bin/apptainer" version >&2
echo "$home/usr/bin/apptainer"
