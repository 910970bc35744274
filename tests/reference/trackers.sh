#!/usr/bin/env bash
# Compares what trackers show of a run with its log (trackers.py), with the trackers' own readers.
# Usage: trackers.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}
env="$cache/trackers-$(sha256sum "$here/requirements-trackers.txt" | cut -c1-12)"
if [[ ! -x $env/bin/python ]]; then
  echo "setting up TensorBoard, W&B and trackio in $env" >&2
  mkdir -p "$cache"
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  python3 -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check install \
    -r "$here/requirements-trackers.txt"
  rm -rf "$env"
  mv "$env.part" "$env"
fi
exec "$env/bin/python" "$here/trackers.py" "$1"
