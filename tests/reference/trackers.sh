#!/usr/bin/env bash
# Compares what the trackers' own readers show of a run with the run's log (trackers.py).
# Usage: trackers.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/python_with.sh" "$here/requirements-trackers.txt")
exec "$python" "$here/trackers.py" "$1"
