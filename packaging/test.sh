#!/usr/bin/env bash
# Installs the packages of DIST in fresh systems that debootstrap makes, and uses them there. Installs the wheel by pip
# without a network. Installs the .deb by apt only if SUITE is this machine's own release. Needs root and debootstrap.
# Usage: test.sh DIST [SUITE...]    SUITE: bookworm, trixie, noble (Ubuntu 24.04); the default is all of them
# EXTRAS=1 also installs the wheel's extras [cuda] and [rocm], 2.2 GB from the package index (PIP_CERT: certificates of
# your network). ROOTS is the folder for the systems (default /var/tmp/fettle-roots); later runs use them again.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
dist=$(realpath "$1")
shift
(($# > 0)) || set -- bookworm trixie noble
roots=${ROOTS:-/var/tmp/fettle-roots}
root=$roots/used

say() { printf '== %s\n' "$*"; }
die() {
  printf 'test-dist: %s\n' "$*" >&2
  exit 1
}

# make_system SUITE FOLDER [INCLUDE-OPTION]. Debian's debootstrap knows neither noble nor Ubuntu's keys.
make_system() {
  if [[ $1 != noble ]]; then
    debootstrap --variant=minbase ${3:+"$3"} "$1" "$2"
    return
  fi
  local keys=ubuntu-keyring_2023.11.28.1_all.deb mirror=http://archive.ubuntu.com/ubuntu
  if [[ ! -e $roots/ubuntu-keys ]]; then
    curl -fsSL -o "$roots/$keys" "$mirror/pool/main/u/ubuntu-keyring/$keys"
    echo "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $roots/$keys" | sha256sum --check --quiet
    dpkg-deb --extract "$roots/$keys" "$roots/ubuntu-keys"
  fi
  debootstrap --variant=minbase --components=main,universe ${3:+"$3"} \
    --keyring="$roots/ubuntu-keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" \
    noble "$2" "$mirror" /usr/share/debootstrap/scripts/gutsy
}

# fresh SUITE PACKAGES: makes a new minimal system with these additional packages in $root, and copies the files of the
# test into it.
fresh() {
  local base=$roots/$1-${2//,/-}
  if [[ ! -e $base/made ]]; then
    rm -rf "$base"
    make_system "$1" "$base" ${2:+"--include=$2"} >"$base.log" 2>&1 || {
      tail -n 3 "$base.log" >&2
      die "debootstrap could not make $1; see $base.log"
    }
    touch "$base/made"
  fi
  rm -rf "$root"
  cp -a "$base" "$root"
  mkdir "$root/work"
  cp "$dist"/fettle* "$root/work/"
  cp -r "$source/examples/debian-helper/"{sample,tune.yaml} "$source/tests/reference/data/rows.parquet" "$root/work/"
  cp "$("$source/examples/debian-helper/fetch_model.sh")" "$root/work/base.gguf"
  cp "$source/packaging/use.sh" "$root/work/"
}

# in_root NET COMMAND...: runs the command in the system $root. NET is "" (with the network) or --net (without).
in_root() {
  # shellcheck disable=SC2016,SC2086
  unshare --mount $1 bash -euc 'mount -t proc proc "$0/proc"; mount -t devtmpfs dev "$0/dev" 2>/dev/null || mount --bind /dev "$0/dev"
    exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 "$@"' "$root" "${@:2}"
}

test_wheel() {
  say "$1: the wheel"
  fresh "$1" python3,python3-venv
  in_root --net bash -euc 'cd /work && python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-index -q fettle-*.whl'
  in_root --net bash /work/use.sh /opt/venv
  in_root --net bash -euc '/opt/venv/bin/pip uninstall -q -y fettle; ! find /opt/venv -name "*fettle*" | grep .'
}

test_extras() {
  say "$1: the wheel's extras"
  fresh "$1" python3,python3-venv,ca-certificates
  [[ -z ${PIP_CERT:-} ]] || cp "$PIP_CERT" "$root/etc/ssl/certs/ca-certificates.crt"
  in_root "" bash -euc 'cd /work && export PIP_CERT=/etc/ssl/certs/ca-certificates.crt
    python3 -m venv /opt/venv && /opt/venv/bin/pip install -q "$(echo fettle-*.whl)[cuda,rocm]"'
  in_root --net bash -euc 'cd /work
    /opt/venv/bin/fettle plan tune.yaml model_name_or_path=base dataset=sample/train.jsonl --target h100 | tee plan.txt
    grep -q "H100" plan.txt
    /opt/venv/bin/fettle doctor plugin=cuda >doctor.txt || true # only the driver is missing
    if grep "is missing" doctor.txt | grep -Ev "libcuda.so.1|libnvidia-ml.so.1|nvidiactl"; then exit 1; fi
    ! /opt/venv/bin/fettle doctor plugin=rocm >doctor.txt
    grep -q "libamdhip64.so.7 is missing" doctor.txt
    grep -q "amdrocm-core-sdk7.14" doctor.txt'
}

test_deb() {
  say "$1: the .deb"
  fresh "$1" ""
  in_root "" bash -euc 'cd /work && apt-get -qq update && apt-get -qq install -y ./fettle_*.deb >/dev/null 2>&1'
  in_root --net bash /work/use.sh /usr
  in_root --net bash -euc 'apt-get -qq remove -y fettle >/dev/null 2>&1; ! find /usr -name "*fettle*" | grep .'
}

((EUID == 0)) || die "run as root: chroot and mount need it"
command -v debootstrap >/dev/null || die "debootstrap is missing; install it"
[[ -n $(find "$dist" -name 'fettle-*.whl') ]] || die "$dist has no wheel; run make dist"
mkdir -p "$roots"
trap 'rm -rf "$root"' EXIT
for suite in "$@"; do
  test_wheel "$suite"
  [[ -z ${EXTRAS:-} ]] || test_extras "$suite"
  # shellcheck disable=SC1091
  [[ $suite != "$(. /etc/os-release && echo "$VERSION_CODENAME")" ]] || test_deb "$suite"
done
say "all packages work in: $*"
