#!/usr/bin/env bash
# Runs the steps of packaging/Dockerfile in chroots that debootstrap makes, one after another, as docker would. Then
# runs the image's program, or COMMAND, in the last chroot. Needs root and debootstrap.
# Usage: run_dockerfile.sh ROOTS [COMMAND...]
# ROOTS is an empty folder for the systems. Two variables may name folders that save time: CACHE has downloads
# (~/.cache/fettle/wheels), CCACHE has compiled objects.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
roots=$1
shift
root='' folder=/ entry=() command=() stage=0
declare -A named

run() {
  # shellcheck disable=SC2016
  unshare --mount bash -euc 'mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"
    [[ ! -d $0/root/.cache/ccache ]] || mount --bind "$CCACHE" "$0/root/.cache/ccache"
    exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin \
      sh -c "cd \"\$0\" && exec \"\$@\"" "$@"' "$root" "$folder" "$@"
}

from() {
  root=$roots/$((++stage)) folder=/ entry=() command=()
  [[ $1 == debian:12 ]] || { echo "run_dockerfile.sh: no base $1" >&2 && exit 1; }
  [[ ${2:-} != AS ]] || named[$3]=$root
  debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || { tail -n 3 "$root.log" >&2 && exit 1; }
  [[ $stage != 1 || -z ${CACHE:-} ]] || { mkdir -p "$root/root/.cache/fettle" && cp -r "$CACHE" "$root/root/.cache/fettle/wheels"; }
  [[ $stage != 1 || -z ${CCACHE:-} ]] || mkdir -p "$root/root/.cache/ccache"
}

copy() {
  case $1 in
    --from=*)
      mkdir -p "$root/$3"
      set +f
      # shellcheck disable=SC2206
      local parts=(${named[${1#--from=}]}$2)
      cp -r "${parts[@]}" "$root/$3"
      ;;
    .)
      mkdir -p "$root/$2"
      git -C "$source" ls-files -z --cached --others --exclude-standard | tar -C "$source" --null -cT - | tar -xC "$root/$2"
      ;;
  esac
}

while read -r word rest; do
  [[ -z $word || $word == '#' ]] || echo "== $word $rest"
  # shellcheck disable=SC2086
  case $word in
    '' | '#') ;;
    FROM) from $rest ;;
    RUN) run sh -c "$rest" </dev/null ;;
    COPY)
      set -f # patterns are expanded in the other system, not here
      copy $rest
      set +f
      ;;
    WORKDIR) folder=$rest && mkdir -p "$root/$folder" ;;
    ENTRYPOINT) mapfile -t entry < <(python3 -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "$rest") ;;
    CMD) mapfile -t command < <(python3 -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "$rest") ;;
    *) echo "run_dockerfile.sh: the step $word is not known here" >&2 && exit 1 ;;
  esac
done <"$source/packaging/Dockerfile"
(($# == 0)) || command=("$@")
run "${entry[@]}" "${command[@]}"
