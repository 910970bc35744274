#!/usr/bin/env bash
# Prints a Python that has pip: the first python3 on PATH, or the system's, because a virtual environment may have no
# pip.
set -euo pipefail
for python in python3 /usr/bin/python3; do
  if "$python" -m pip --version >/dev/null 2>&1; then echo "$python" && exit; fi
done
echo "no python3 has pip; install the package python3-pip" >&2
exit 1
