#!/usr/bin/env bash
# Runs sweep.py with its words on hosts that with_hosts.sh makes. Usage (root): tests/launchers/run.sh [WORD ...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/fettle-hosts-XXXXXX")
code=0
"$here/with_hosts.sh" 2 "$folder" "$here/sweep.py" --folder "$folder" "$@" || code=$?
if ((code == 0)); then rm -rf "$folder"; else echo "kept: $folder" >&2; fi
exit $code
