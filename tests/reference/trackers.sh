#!/usr/bin/env bash
# Compares what the trackers' own readers show of a run with the run's log (trackers.py).
# Usage: trackers.sh PROGRAM [--mlflow]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=requirements-trackers.txt
[[ ${2:-} != --mlflow ]] || requirements=requirements-mlflow.txt
python=$("$here/../../scripts/python_with.sh" "$here/$requirements")
exec "$python" "$here/trackers.py" "$@"
