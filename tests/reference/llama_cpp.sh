#!/usr/bin/env bash
# Runs exported GGUF files in llama.cpp (llama_cpp.py). Usage: llama_cpp.sh PROGRAM [short]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}
env="$cache/llama-cpp-$(sha256sum "$here/requirements-llama-cpp.txt" | cut -c1-12)"
if [[ ! -x $env/bin/python ]]; then
  echo "setting up llama.cpp and a model of 135M weights (190 MB) in $env" >&2
  mkdir -p "$cache"
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  python3 -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check install --no-deps \
    --require-hashes --only-binary=:all: -r "$here/requirements-llama-cpp.txt"
  rm -rf "$env"
  mv "$env.part" "$env"
fi
exec "$env/bin/python" "$here/llama_cpp.py" "$@"
