#!/usr/bin/env bash
# Compares Fettle with Transformers + PEFT, live. usage: parity.sh [FAMILY ...] [--fettle PROGRAM] [--reference-only]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/python_env.sh")
exec "$python" "$here/parity.py" "$@"
