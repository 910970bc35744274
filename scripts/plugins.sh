#!/usr/bin/env bash
# Fetches the GPU vendors' PJRT plugins into the cache (FETTLE_CACHE, by default ~/.cache/fettle), and the libraries
# that NVIDIA's plugin needs to run on a GPU. It is safe to run the script again.
# Usage: scripts/plugins.sh [cuda] [rocm] [nvidia]; without arguments, cuda and rocm. The variable GPU decides about
# nvidia: "nvidia" adds it, "none" leaves it out. If GPU is not set, nvidia is added if NVIDIA's driver is installed.
#
#   cuda    plugins/cuda/xla_cuda_plugin.so, and beside its folder plugins/nvidia/ with ptxas, nvlink and libdevice:
#           enough to compile; 260 MB to fetch, 520 MB unpacked
#   rocm    plugins/rocm/xla_rocm_plugin.so, which takes ROCm's libraries from this machine (docs/gpus.md). If there are
#           none, it loads with plugins/rocm/stand-ins/ and can compile, but not run; 130 MB to fetch, 460 MB unpacked
#   nvidia  plugins/nvidia/{cu13,cudnn,nccl}/lib: cuDNN, cuBLAS, NCCL and the other libraries that the plugin opens by
#           name, which are all that a GPU needs besides the driver; 1.6 GB to fetch, 2.5 GB unpacked
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
  "$here/pip_download.sh" "$cache/plugins.log" "$staging" "$staging/wanted.txt" --no-cache-dir --implementation cp \
    --python-version 3.11 --abi none --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 || exit 1
}

# extract WHEEL-PATTERN TO MEMBER...: unpacks members of the wheel to TO. Each keeps its path in the wheel. The callers
# move a plugin's library from there to its final folder.
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
  # The run-time libraries of install_nvidia stay.
  rm -rf "$cache"/plugins/nvidia/cu13/{bin,nvvm} "$cache/plugins/cuda"
  mkdir -p "$cache/plugins/cuda" "$cache/plugins/nvidia/cu13"
  mv "$staging"/cuda/nvidia/cu13/{bin,nvvm} "$cache/plugins/nvidia/cu13/"
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

# The wheels are fetched and unpacked one by one, so that the disk need not hold all of them in addition to their
# content.
install_nvidia() {
  local name
  [[ -e $cache/plugins/cuda/xla_cuda_plugin.so ]] || die "nvidia: the cuda plugin is not there; run scripts/plugins.sh cuda nvidia"
  for name in nvidia-cuda-runtime nvidia-cuda-nvrtc nvidia-nvjitlink nvidia-cuda-cupti nvidia-cufft nvidia-cublas \
    nvidia-cudnn-cu13 nvidia-nccl-cu13; do
    fetch "$name"
    extract "${name//-/_}-*.whl" "$staging/nvidia" 'nvidia/*/lib/*.so*'
    rm "$staging"/*.whl
  done
  for name in cu13 cudnn nccl; do
    rm -rf "$cache/plugins/nvidia/$name/lib"
    mkdir -p "$cache/plugins/nvidia/$name"
    mv "$staging/nvidia/nvidia/$name/lib" "$cache/plugins/nvidia/$name/"
  done
  "$here/check_plugin_libraries" cuda >&2
}

has_nvidia_driver() {
  [[ -e /dev/nvidiactl ]] || PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'
}

# stamp_of ITEM: prints the path of a file that exists if and only if the item was installed in the same way from the
# same wheels. Other changes of the scripts fetch nothing again.
stamp_of() {
  local folder=$1 how name
  [[ $1 != nvidia ]] || folder=nvidia/cu13/lib
  how=$(declare -f extract "install_$1")
  for name in $(sed -n 's/^\([a-z].*\)==.*/\1/p' "$here/plugins.txt"); do
    [[ $how != *"$name"* ]] || how+=$(grep "^$name==" "$here/plugins.txt")
  done
  [[ $1 != rocm ]] || how+=$(<"$here/make_stand_ins.sh")
  how=$(sha256sum <<<"$how")
  echo "$cache/plugins/$folder/ready-${how:0:16}"
}

[[ $cache == /* ]] || die "the cache is '$cache', wanted an absolute path; check FETTLE_CACHE or HOME"
[[ $(uname -m) == x86_64 ]] || die "the pinned plugins are for x86_64, this is $(uname -m)"
if (($# == 0)); then
  set -- cuda rocm
  case ${GPU:-} in
    nvidia) set -- "$@" nvidia ;;
    none) ;;
    '') ! has_nvidia_driver || set -- "$@" nvidia ;;
    *) die "GPU=$GPU: wanted nvidia (fetch what runs on NVIDIA's GPUs) or none; AMD's come with ROCm, see docs/gpus.md" ;;
  esac
fi
complete=1
for name in "$@"; do
  declare -F "install_$name" >/dev/null ||
    die "nothing is pinned for $name; there are" $(compgen -A function install_ | sed 's/^install_/  /')
  [[ -e $(stamp_of "$name") ]] || complete=0
done
if ((!complete)); then  # a complete cache may be read-only
  { mkdir -p -m 700 "$cache" && mkdir -p "$cache/plugins"; } ||
    die "cannot create $cache; set FETTLE_CACHE to a folder that can be written"
  exec 9>"$cache/lock"
  flock 9
  trap 'rm -rf "$staging"' EXIT
fi
for name in "$@"; do
  [[ ! -e $(stamp_of "$name") ]] || continue
  rm -rf "$staging"
  mkdir -p "$staging"
  "install_$name"
  touch "$(stamp_of "$name")"
  echo "plugins: $name is in $cache/plugins/$name" >&2
done
if [[ " $* " == *" rocm "* && -e /dev/kfd ]] && ! "$here/check_plugin_libraries" rocm >&2; then
  echo "plugins: ROCm's libraries above are missing here, so the rocm plugin can plan, not train" >&2
fi
