#!/usr/bin/env bash
# Compares what trackers show of a run with its log (trackers.py), with the trackers' own readers.
# Usage: trackers.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/python_with.sh" "$here/requirements-trackers.txt")
exec "$python" "$here/trackers.py" "$1"
