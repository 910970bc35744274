#!/usr/bin/env bash
# Asks `fettle serve` with the openai client (openai_client.py). Usage: openai_client.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}
env="$cache/openai-$(sha256sum "$here/requirements-openai.txt" | cut -c1-12)"
if [[ ! -x $env/bin/python ]]; then
  echo "setting up the openai client in $env" >&2
  mkdir -p "$cache"
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  python3 -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check install \
    -r "$here/requirements-openai.txt"
  rm -rf "$env"
  mv "$env.part" "$env"
fi
exec "$env/bin/python" "$here/openai_client.py" "$1"
