#!/usr/bin/env bash
# Tests `fettle serve` with the openai client (openai_client.py). Usage: openai_client.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/python_with.sh" "$here/requirements-openai.txt")
exec "$python" "$here/openai_client.py" "$1"
