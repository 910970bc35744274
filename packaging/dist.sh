#!/usr/bin/env bash
# Makes BUILD/dist/fettle_*.deb for this machine's distribution and release, and BUILD/dist/fettle-*.whl for any
# distribution whose C library is not older than the wheel's tag. The same commit and compiler give the same bytes.
# Usage: dist.sh BUILD
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
cache=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}
dist=$build/dist
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 1735689600)}
export SOURCE_DATE_EPOCH

for tool in dpkg-deb dpkg-shlibdeps cmake python3 unzip; do
  command -v "$tool" >/dev/null || { echo "dist: $tool is missing; install dpkg-dev, cmake, python3 and unzip" >&2 && exit 1; }
done
rm -rf "$dist"
mkdir -p "$dist"
cmake --install "$build" --prefix "$dist/tree" --strip >/dev/null
if readelf -d "$dist"/tree/lib/fettle/fettle* | grep -E 'PATH.*(\[|:)(:|\])'; then
  echo "dist: an empty entry in an RPATH is the working directory" >&2
  exit 1
fi
version=$("$dist/tree/bin/fettle" --version | cut -d' ' -f2)

make_deb() {
  local root=$dist/deb depends
  mkdir -p "$root/DEBIAN"
  cp -a "$dist/tree" "$root/usr"
  gzip -9n "$root/usr/share/man/man1/fettle.1"
  mv "$root"/usr/share/zsh/{site-functions,vendor-completions} # where Debian's zsh looks
  # dpkg-shlibdeps must run in the folder of a source package.
  mkdir -p "$dist/source/debian"
  printf 'Source: fettle\n\nPackage: fettle\nArchitecture: any\n' >"$dist/source/debian/control"
  local lib=$root/usr/lib/fettle
  local loaded=("$lib"/fettle_columns.so "$lib"/lib/* "$lib"/plugins/cpu/*.so)
  depends=$(cd "$dist/source" && dpkg-shlibdeps -O --ignore-missing-info -l"$lib/lib" -e"$lib/fettle" \
    "${loaded[@]/#/-e}" -dSuggests -e"$lib/fettle_pmix.so" 2>"$dist/shlibdeps.log") ||
    { cat "$dist/shlibdeps.log" >&2 && exit 1; }
  cat >"$root/DEBIAN/control" <<CONTROL
Package: fettle
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: Fettle <fettle@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: $(sed -n 's/^shlibs:Depends=//p' <<<"$depends")
Recommends: ca-certificates, redis-server
Suggests: $(sed -n 's/^shlibs:Suggests=//p' <<<"$depends")
Description: fine-tunes language models
 A program that trains, evaluates and serves language models on CPUs, and on
 GPUs through the PJRT plugins of their vendors.
CONTROL
  find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zzstd --build "$root" "$dist/fettle_${version}_$(dpkg --print-architecture).deb" >/dev/null
}

# Prints the paths of the system's libraries that the program needs, except the C and C++ libraries.
libraries() {
  ldd "$dist/tree/lib/fettle/fettle" "$dist"/tree/lib/fettle/fettle_columns.so | sed -n 's/.* => \(.*\) (0x[0-9a-f]*)$/\1/p' |
    sort -u | grep -Fv "$dist/" | grep -Ev "/(lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)|ld-linux-x86-64)\.so\.[0-9]"
}

make_wheel() {
  local lib=$dist/tree/lib/fettle fonts=/usr/share/fonts/truetype/dejavu needed libc
  needed=$(libraries)
  for library in $needed; do
    install -m 644 "$library" "$lib/lib/"
    ! readelf -d "$library" | grep -q RUNPATH || { echo "dist: $library has a RUNPATH, so the libraries that it needs are not found" >&2 && exit 1; }
  done
  mkdir "$lib/fonts"
  install -m 644 "$fonts/DejaVuSans.ttf" "$fonts/DejaVuSans-Bold.ttf" "$here/fonts.conf" "$lib/fonts/"
  # shellcheck disable=SC2086
  "$here/licences.sh" "$cache" "$dist/tree/share/doc/fettle" $needed "$fonts/DejaVuSans.ttf"
  # The newest version of the C library that a file asks for.
  libc=$(find "$lib" -type f \( -name '*.so*' -o -name fettle \) -exec objdump -T {} + |
    grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  "$here/wheel.py" "$dist/tree" "manylinux_$(tr . _ <<<"${libc#GLIBC_}")_$(uname -m)" "$dist"
}

make_deb
make_wheel # last, because it adds files to the tree
rm -rf "$dist/tree" "$dist/deb" "$dist/source" "$dist/shlibdeps.log"
ls -l "$dist" >&2
