#!/usr/bin/env bash
# Prints the command of Chromium: $CHROMIUM, or one on PATH, or Debian's chromium-headless-shell. The last one is
# unpacked in the cache with the libraries that this system lacks; nothing is installed. apt checks the signatures.
# Ends with code 77 if Chromium cannot be fetched.
set -euo pipefail
for name in "${CHROMIUM:-}" chromium-headless-shell chromium chromium-browser google-chrome; do
  if [[ -n $name ]] && command -v "$name"; then exit; fi
done
version=$(apt-cache policy chromium-headless-shell 2>/dev/null | awk '/Candidate/ { print $2 }')
[[ -n $version && $version != "(none)" ]] ||
  { echo "$0: apt has no package chromium-headless-shell; run apt-get update, or set CHROMIUM" >&2 && exit 77; }
folder=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}/chromium-$version
if [[ ! -d $folder ]]; then
  mkdir -p "$(dirname "$folder")"
  part=$(mktemp -d "$folder.XXXXXX")
  mapfile -t missing < <(apt-get install --simulate --no-install-recommends chromium-headless-shell 2>/dev/null |
    awk '/^Inst/ { print $2 }')
  (cd "$part" && apt-get -qq download "${missing[@]}" && for file in *.deb; do dpkg -x "$file" .; done && rm ./*.deb) >&2 ||
    { rm -rf "$part" && echo "$0: the packages of Chromium cannot be fetched" >&2 && exit 77; }
  program=$(find "$part/usr/lib" -name chromium-headless-shell -type f | head -n 1)
  cat >"$part/chromium" <<END
#!/usr/bin/env bash
here=\$(cd "\$(dirname "\$0")" && pwd)
export LD_LIBRARY_PATH=\$(find "\$here/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | tr '\n' ':')
exec "\$here${program#"$part"}" "\$@"
END
  chmod 755 "$part" "$part/chromium"
  mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part"
fi
echo "$folder/chromium"
