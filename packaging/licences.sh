#!/usr/bin/env bash
# Copies the licences of Fettle and of what its packages contain. Usage: licences.sh CACHE FOLDER [LIBRARY...]
# CACHE has the archives of scripts/wheels.txt. The licence of a LIBRARY comes from its Debian package. The program
# itself contains code of two header-only libraries.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=$1 to=$2
shift 2
mkdir -p "$to/licences"
cp "$root/LICENSE" "$to/copyright"
for name in lammps-jax-pjrt-cpu pyarrow; do
  version=$(sed -n "s/^$name==\([^ ]*\) .*/\1/p" "$root/scripts/wheels.txt")
  unzip -qoj "$cache/wheels/${name//-/_}-$version"-*.whl '*.dist-info/licenses/*' -d "$to/licences/${name//-/_}"
done

# package_of FILE: prints the Debian package that has the file. ldd prints paths in /lib; dpkg lists some of these files
# in /usr/lib. On other distributions, dpkg-query may be missing, or it may be a stand-in (scripts/setup.sh).
package_of() {
  local package
  package=$(dpkg-query -S "$1" 2>/dev/null) || package=$(dpkg-query -S "/usr$1" 2>/dev/null) || return
  package=${package%%:*}
  [[ -e /usr/share/doc/$package/copyright ]] && echo "$package"
}

for library in /usr/include/CLI/CLI.hpp /usr/include/nlohmann/json.hpp "$@"; do
  package=$(package_of "$library") || {
    echo "licences.sh: no Debian package has $library" >&2
    (($# == 0)) || exit 1  # packages contain these libraries; `make install` copies none
    continue
  }
  cp -L "/usr/share/doc/$package/copyright" "$to/licences/$package"
done
chmod -R u=rwX,go=rX "$to"
