#!/usr/bin/env bash
# Runs exported GGUF files in llama.cpp (llama_cpp.py). The first run downloads 190 MB. Usage: llama_cpp.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/python_with.sh" "$here/requirements-llama-cpp.txt" \
  --no-deps --require-hashes --only-binary=:all:)
exec "$python" "$here/llama_cpp.py" "$1"
