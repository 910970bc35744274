#!/usr/bin/env bash
# Uses the pages of `fettle board`, `fettle serve` and report.html in a headless Chromium.
# Usage: tests/browser/run.sh [BUILD [CHECK ...]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build}
chromium=$("$here/chromium.sh")
exec python3 "$here/pages.py" --fettle "$build/fettle" --chromium "$chromium" --pictures "$build/pictures" "${@:2}"
