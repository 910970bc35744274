#!/usr/bin/env bash
# Makes train.jsonl and eval.jsonl from this machine's apt lists: descriptions of packages, each with its section of the
# archive. The same lists give the same files. Usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]
# LISTS=FILE reads that file of package records instead of apt's lists. SECTIONS=N keeps N sections (20).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
helper=$here/../debian-helper
out=${1:?usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]}
train_rows=${2:-6000}
eval_rows=${3:-1500}
sections=${SECTIONS:-20}
fewest=2000
export LC_ALL=C

packages() {
  if [[ -n ${LISTS:-} ]]; then
    cat "$LISTS"
  elif command -v apt-cache >/dev/null; then
    apt-cache dumpavail
  fi
}

# Sorts by the number in front of each row, keeps the first rows, and renames the file when it is complete.
place() {
  awk -f "$helper/text.awk" -f "$here/sections.awk" -v most="$sections" -v want="$1" \
    pass=1 "$scratch/records" pass=2 "$scratch/records" |
    sort -t $'\t' -k1,1n -k2 | cut -f2- | awk -v rows="$2" 'NR <= rows' >"$out/$1.jsonl.part"
  mv "$out/$1.jsonl.part" "$out/$1.jsonl"
}

mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
awk -f "$helper/records.awk" <(packages) | iconv -c -f UTF-8 -t UTF-8 | sort -t $'\t' -k1,1 \
  >"$scratch/records"
count=$(wc -l <"$scratch/records")
if [[ -z ${LISTS:-} ]] && ((count < fewest)); then
  echo "prepare: the apt lists have only $count packages; apt-get update fetches them" >&2
  exit 1
fi
place train "$train_rows"
place eval "$eval_rows"
echo "prepare: $out: $count packages, $(wc -l <"$out/train.jsonl") rows in train.jsonl, $(wc -l <"$out/eval.jsonl") in eval.jsonl" >&2
