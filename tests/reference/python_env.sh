#!/usr/bin/env bash
# Prints the path of a Python with CPU torch, Transformers and PEFT. If this environment is missing, makes it in the
# cache (FETTLE_CACHE, default ~/.cache/fettle). A second call waits until the first has made it. If FETTLE_PYTHON is set, prints its value: a Python that has these
# packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ -n ${FETTLE_PYTHON:-} ]]; then
  echo "$FETTLE_PYTHON"
  exit
fi
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}
env="$cache/parity-$(cat "$here/requirements.txt" "$here/python_env.sh" | sha256sum | cut -c1-12)"

# To be imported, torch's wheel needs a gigabyte of CUDA libraries. On the CPU it calls none of them, so stubs are
# enough. Their functions return 100, CUDA's code for "no device", or the name of this error.
stub_cuda_libraries() {
  local lib="$1" work library version
  work=$(mktemp -d)
  nm -D --undefined-only "$lib"/*.so | awk '{sub("@.*", "", $2); print $2}' |
    grep -E '^_*(cu|nv|nccl)[A-Za-z0-9_]+$' | sort -u |
    sed -e 's/.*String$\|.*Name$/const char *&(void) { return "no device"; }/;t' \
      -e 's/.*/int &(void) { return 100; }/' >"$work/stub.c"
  for library in $(readelf -d "$lib"/*.so | grep -oE 'lib(cu|nv|nccl)[A-Za-z_]*\.so\.[0-9]+' | sort -u); do
    version=$library
    [[ $library == libnvshmem* ]] && version=NVSHMEM
    echo "$version { global: *; };" >"$work/version"
    cc -w -shared -fPIC -fno-builtin "$work/stub.c" -Wl,-soname,"$library" -Wl,--version-script="$work/version" \
      -o "$lib/$library"
  done
  rm -r "$work"
}

make_environment() {
  rm -rf "$env.part"
  python3 -m venv --without-pip "$env.part"
  local pip=(python3 -m pip --python "$env.part/bin/python" --quiet --disable-pip-version-check)
  "${pip[@]}" install --no-deps $(grep -E '^(torch|peft|accelerate)=' "$here/requirements.txt")
  "${pip[@]}" install filelock typing-extensions sympy networkx jinja2 fsspec numpy psutil \
    $(grep -E '^(transformers|sentencepiece|tiktoken)=' "$here/requirements.txt")
  stub_cuda_libraries "$(echo "$env.part"/lib/python3*/site-packages/torch/lib)"
  "$env.part/bin/python" -c 'import torch, transformers, peft, accelerate'
  rm -rf "$env"
  mv "$env.part" "$env"
}

if [[ ! -x $env/bin/python ]]; then
  mkdir -p "$cache"
  exec 9>"$env.lock"
  flock 9
fi
if [[ ! -x $env/bin/python ]]; then
  echo "setting up Transformers and PEFT in $env" >&2
  trap 'cat "$env.log" >&2' EXIT
  make_environment >"$env.log" 2>&1
  trap - EXIT
fi
echo "$env/bin/python"
