#!/usr/bin/env bash
# Prints the path of a Python with JAX. If its environment is missing in the cache, creates it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}
env="$cache/jax-$(sha256sum "$here/requirements-jax.txt" | cut -c1-12)"
if [[ ! -x $env/bin/python ]]; then
  echo "setting up JAX in $env" >&2
  mkdir -p "$cache"
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  python3 -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check install -r "$here/requirements-jax.txt" >&2
  rm -rf "$env"
  mv "$env.part" "$env"
fi
echo "$env/bin/python"
