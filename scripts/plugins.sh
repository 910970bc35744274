#!/usr/bin/env bash
# Fetches the GPU vendors' PJRT plugins into the cache (FETTLE_CACHE, by default ~/.cache/fettle), about 380 MB to
# fetch and 1 GB unpacked. Usage: scripts/plugins.sh [cuda] [rocm]; both without arguments. Safe to run again.
#
#   plugins/cuda/xla_cuda_plugin.so  finds plugins/nvidia/ (ptxas, nvlink, libdevice) beside its folder
#   plugins/rocm/xla_rocm_plugin.so  takes ROCm's libraries from this machine; where there are none, plugins/rocm/stand-ins/
#                                    lets it load to compile, not to run
set -euo pipefail
umask 022  # Fettle does not load code that other users may write
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}
staging=$cache/staging-plugins

die() {
  printf 'plugins: %s\n' "$@" >&2
  exit 1
}

# fetch NAME...: downloads the wheels of these lines of plugins.txt into the staging folder.
fetch() {
  local name
  for name in "$@"; do grep "^$name==" "$here/plugins.txt"; done >"$staging/wanted.txt"
  echo "plugins: fetching $*" >&2
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --require-hashes \
    --only-binary=:all: --implementation cp --python-version 3.11 --abi none --platform manylinux_2_27_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --dest "$staging" \
    --requirement "$staging/wanted.txt" >&2 ||
    die "pip could not fetch $* (see above); check the network and pip's configuration, then run again"
}

# extract WHEEL-PATTERN TO MEMBER...: members keep their path below TO, those of a plugin lose it.
extract() {
  local wheel to=$2
  wheel=$(find "$staging" -maxdepth 1 -name "$1")
  shift 2
  mkdir -p "$to"
  unzip -DD -qo "$wheel" "$@" -d "$to" || die "could not unpack $wheel into $to; is the disk full?"
}

install_cuda() {
  fetch jax-cuda13-pjrt nvidia-cuda-nvcc nvidia-nvvm
  extract 'nvidia_cuda_nvcc-*.whl' "$staging/cuda" nvidia/cu13/bin/ptxas nvidia/cu13/bin/nvlink
  extract 'nvidia_nvvm-*.whl' "$staging/cuda" 'nvidia/cu13/nvvm/libdevice/*'
  extract 'jax_cuda13_pjrt-*.whl' "$staging/cuda" '*/xla_cuda_plugin.so'
  chmod +x "$staging"/cuda/nvidia/cu13/bin/*
  rm -rf "$cache/plugins/nvidia" "$cache/plugins/cuda"
  mkdir -p "$cache/plugins/cuda"
  mv "$staging/cuda/nvidia" "$cache/plugins/"
  mv "$staging"/cuda/*/*/xla_cuda_plugin.so "$cache/plugins/cuda/"
}

install_rocm() {
  fetch jax-rocm7-pjrt
  extract 'jax_rocm7_pjrt-*.whl' "$staging/rocm" '*/xla_rocm_plugin.so'
  "$here/make_stand_ins.sh" "$staging"/rocm/*/*/xla_rocm_plugin.so "$staging/stand-ins"
  rm -rf "$cache/plugins/rocm"
  mkdir -p "$cache/plugins/rocm"
  mv "$staging/stand-ins" "$cache/plugins/rocm/"
  mv "$staging"/rocm/*/*/xla_rocm_plugin.so "$cache/plugins/rocm/"
}

[[ $(uname -m) == x86_64 ]] || die "the pinned plugins are for x86_64, this is $(uname -m)"
{ mkdir -p -m 700 "$cache" && mkdir -p "$cache/plugins"; } || die "cannot create $cache; set FETTLE_CACHE to a folder that can be written"
exec 9>"$cache/lock"
flock 9
trap 'rm -rf "$staging"' EXIT
for vendor in "${@:-cuda rocm}"; do
  for name in $vendor; do
    [[ $name == cuda || $name == rocm ]] || die "no plugin is pinned for $name; there are cuda and rocm"
    stamp=$cache/plugins/$name/ready-$(cat "$here"/plugins.{sh,txt} "$here/make_stand_ins.sh" | sha256sum | cut -c1-16)
    [[ ! -e $stamp ]] || continue
    rm -rf "$staging"
    mkdir -p "$staging"
    "install_$name"
    touch "$stamp"
    echo "plugins: $name is in $cache/plugins/$name" >&2
  done
done
