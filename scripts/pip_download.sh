#!/usr/bin/env bash
# Downloads the archives of a list of pinned requirements with pip, which checks their sha256. pip's messages go to LOG;
# if pip fails, prints the reason in one line. Usage: pip_download.sh LOG FOLDER REQUIREMENTS [PIP-OPTION ...]
set -euo pipefail
log=$1 folder=$2 requirements=$3
shift 3
python=$("$(dirname "$0")/python_with_pip.sh")
"$python" -m pip download --quiet --disable-pip-version-check --retries 2 --no-deps --require-hashes \
  --only-binary=:all: --dest "$folder" --requirement "$requirements" "$@" >"$log" 2>&1 && exit
reason=$(grep '^ERROR: ' "$log" | tail -n 1) || true
if grep -Eq 'NewConnectionError|NameResolutionError|Timeout|ConnectionReset|ProxyError' "$log"; then
  reason="the network cannot be reached"
fi
echo "cannot download: ${reason:-pip failed}; check the network and pip's configuration, then run again (pip's messages are in $log)" >&2
exit 1
