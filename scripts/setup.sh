#!/usr/bin/env bash
# Installs what Fettle needs on Debian or Ubuntu: packages, and archives unpacked into the cache
# (FETTLE_CACHE, by default ~/.cache/fettle). Safe to run again; does nothing when all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-$HOME/.cache/fettle}

install_packages() {
  local missing=() package
  while read -r package; do
    [[ $package =~ ^# || -z $package ]] && continue
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done <"$here/packages.txt"
  ((${#missing[@]} == 0)) && return
  echo "installing packages: ${missing[*]}" >&2
  local as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# The wheels are archives for one platform, whatever Python this machine has.
fetch_wheels() {
  local stamp="$cache/wheels-$(sha256sum "$here/wheels.txt" | cut -c1-16)"
  [[ -e $stamp ]] && return
  echo "fetching the PJRT plugin and headers into $cache" >&2
  mkdir -p "$cache/wheels" "$cache/include" "$cache/plugins/cpu"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --implementation cp --python-version 3.11 --abi cp311 --abi none --platform manylinux_2_27_x86_64 \
    --dest "$cache/wheels" --requirement "$here/wheels.txt" >&2
  unzip -qoj "$cache"/wheels/xla_cpu_pjrt-*.whl '*/include/pjrt_c_api.h' -d "$cache/include"
  mkdir -p "$cache/include/xla/ffi/api"
  unzip -qoj "$cache"/wheels/jaxlib-*.whl 'jaxlib/include/xla/ffi/api/*.h' -d "$cache/include/xla/ffi/api"
  unzip -qoj "$cache"/wheels/lammps_jax_pjrt_cpu-*.whl '*/pjrt_c_api_cpu_plugin.so' -d "$cache/plugins/cpu"
  touch "$stamp"
}

install_packages
fetch_wheels
