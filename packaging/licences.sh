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
for name in lammps_jax_pjrt_cpu pyarrow; do
  unzip -qoj "$cache/wheels/$name"-*.whl '*.dist-info/licenses/*' -d "$to/licences/$name"
done
command -v dpkg-query >/dev/null || exit 0 # other distributions only have `make install`, which copies no libraries
for library in /usr/include/CLI/CLI.hpp /usr/include/nlohmann/json.hpp "$@"; do
  # ldd prints paths in /lib; dpkg lists some of these files in /usr/lib.
  package=$(dpkg-query -S "$library" 2>/dev/null || dpkg-query -S "/usr$library") || {
    echo "licences.sh: no Debian package has $library" >&2
    exit 1
  }
  package=${package%%:*}
  cp -L "/usr/share/doc/$package/copyright" "$to/licences/$package"
done
chmod -R u=rwX,go=rX "$to"
