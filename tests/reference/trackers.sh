#!/usr/bin/env bash
# Compares what trackers show of a run with its log (trackers.py), with the trackers' own readers.
# Usage: trackers.sh PROGRAM [--mlflow]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=requirements-trackers.txt
[[ ${2:-} != --mlflow ]] || requirements=requirements-mlflow.txt
python=$("$here/../../scripts/python_with.sh" "$here/$requirements")
exec "$python" "$here/trackers.py" "$@"
