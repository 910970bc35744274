#!/usr/bin/env bash
# Makes stand-ins for the libraries that a shared object needs and that are missing on this machine, so that the object
# loads.
# Usage: scripts/make_stand_ins.sh SHARED-OBJECT FOLDER [SOURCES]
#
# Every function in a stand-in returns 100 (hipErrorNoDevice), or "stand-in" if its name says that it returns a text. A
# vendor's plugin that is loaded with stand-ins can compile, because compiling does not depend on these functions, but
# it finds no device. Functions in SOURCES/LIBRARY.c replace the generated functions of that library.
set -euo pipefail
(($# == 2 || $# == 3)) || { echo "usage: $0 SHARED-OBJECT FOLDER [SOURCES]" >&2 && exit 2; }
object=$1 folder=$2 sources=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
touch "$work/written"
for source in ${sources:+"$sources"/*.c}; do
  name=$(basename "$source" .c)
  gcc -O1 -fPIC -Wall -Werror -c "$source" -o "$work/$name.o"
  nm --defined-only --extern-only "$work/$name.o" | awk '{ print $3 }' >>"$work/written"
done

# Lists the libraries that do not come with the C and C++ compilers.
readelf -W -d "$object" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
  grep -Ev '^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)|ld-linux-x86-64)\.so' >"$work/libraries" ||
  { echo "$object needs no other libraries" >&2 && exit 1; }

# A symbol with a version belongs to the library that has this version. Symbols without a version may be in any library,
# so they go to the first library without versions. Writes LIBRARY.c and LIBRARY.map.
{
  readelf -W -V "$object" | sed -n '/^Version needs/,$p'
  echo "== symbols"
  readelf -W --dyn-syms "$object"
} | awk -v work="$work" '
  BEGIN {
    while ((getline line < (work "/libraries")) > 0) { ours[line] = 1; order[++count] = line }
    while ((getline line < (work "/written")) > 0) written[line] = 1
  }
  /^== symbols/ { symbols = 1; for (i = count; i >= 1; --i) if (!(order[i] in versioned)) any = order[i]; next }
  !symbols && / File: / { match($0, /File: [^ ]+/); file = substr($0, RSTART + 6, RLENGTH - 6); next }
  !symbols && / Name: / && file in ours {
    match($0, /Name: [^ ]+/); name = substr($0, RSTART + 6, RLENGTH - 6)
    library_of[$NF] = file; version_of[$NF] = name; versioned[file] = 1; next
  }
  symbols && $7 == "UND" && $5 == "GLOBAL" {
    symbol = $8; sub(/@.*/, "", symbol)
    number = $9; gsub(/[()]/, "", number)
    if ($8 !~ /@/) library = any; else if (number in library_of) library = library_of[number]; else next
    if ($4 == "OBJECT") code = "char " symbol "[4096];"
    else if (symbol ~ /ErrorString|ErrorName|ErrorStr|to_string|ApiName|KernelName|LastError$/)
      code = symbol ~ /^hip(Get|Peek).*LastError$/ ? "int " symbol "(void) { return 100; }" \
                                                   : "const char* " symbol "(void) { return \"stand-in\"; }"
    else code = "int " symbol "(void) { return 100; }"
    if (!(symbol in written)) print code > (work "/" library ".c")
    if ($8 ~ /@/) exported[library, version_of[number]] = exported[library, version_of[number]] " " symbol ";"
  }
  END {
    for (key in exported) {
      split(key, part, SUBSEP)
      print part[2] " { global:" exported[key] " };" > (work "/" part[1] ".map")
    }
  }'

while read -r library; do
  touch "$work/$library.c"
  flags=(-shared -fPIC -w -fno-builtin "-Wl,-soname,$library")
  [[ ! -e $work/$library.map ]] || flags+=("-Wl,--version-script=$work/$library.map")
  [[ ! -e $work/$library.o ]] || flags+=("$work/$library.o" -lpthread)
  gcc "${flags[@]}" "$work/$library.c" -o "$folder/$library"
done <"$work/libraries"
