#!/usr/bin/env bash
# Lets Transformers load models that Fettle exported in 8-bit floats and 4-bit integers (float8_export.py).
# Usage: float8_export.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/python_env.sh")
added=$("$here/../../scripts/python_with.sh" "$here/requirements-float8.txt" --no-deps --only-binary=:all:)
PYTHONPATH=$("$added" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') exec "$python" \
  "$here/float8_export.py" "$1"
