#!/usr/bin/env bash
# Prints the path of a Python that has the packages of a requirements file. Makes a virtual environment for it in the
# cache if there is none yet; a second call waits for it. Usage: python_with.sh REQUIREMENTS [PIP-OPTION ...]
set -euo pipefail
requirements=$1
shift
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}
env="$cache/$(basename "$requirements" .txt)-$(sha256sum "$requirements" | cut -c1-12)"
if [[ ! -x $env/bin/python ]]; then
  mkdir -p "$cache"
  exec 9>"$env.lock"
  flock 9
fi
if [[ ! -x $env/bin/python ]]; then
  echo "installing the packages of $(basename "$requirements") in $env" >&2
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  python=$("$(dirname "$0")/python_with_pip.sh")
  "$python" -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check install \
    -r "$requirements" "$@" >&2
  rm -rf "$env"
  mv "$env.part" "$env"
fi
echo "$env/bin/python"
