#!/usr/bin/env bash
# Lets vLLM on the CPU load what Fettle writes (vllm_models.py). The first run downloads about 1 GB.
# Usage: vllm.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/python_with.sh" "$here/requirements-vllm.txt" --no-deps --only-binary=:all:)
libraries=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch/lib
if ! compgen -G "$libraries/libcudart.so.*" >/dev/null; then
  # python_env.sh is not sourced as a whole, because it would make its own environment.
  source <(sed -n '/^stub_cuda_libraries() {/,/^}/p' "$here/python_env.sh")
  stub_cuda_libraries "$libraries"
fi
exec "$python" "$here/vllm_models.py" "$1" "$("$here/../../examples/debian-helper/fetch_model.sh")"
