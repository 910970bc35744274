#!/usr/bin/env bash
# Makes rows from this machine's apt lists: pretrain.jsonl and train.jsonl to train on; eval.jsonl, sections.jsonl and
# descriptions.jsonl to measure. The same lists give the same files.
# Usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]
# LISTS=FILE reads that file of package records instead of apt's lists.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]}
train_rows=${2:-6000}
eval_rows=${3:-400}
fewest=2000
export LC_ALL=C

# Long descriptions are in separate files, which a machine may not have.
translations() {
  local lists="" file
  command -v apt-config >/dev/null || return 0
  eval "$(apt-config shell lists Dir::State::lists/d)"
  for file in "${lists:-/var/lib/apt/lists}"/*_Translation-en*; do
    [[ -e $file ]] && /usr/lib/apt/apt-helper cat-file "$file" && echo
  done
  return 0
}

packages() {
  if [[ -n ${LISTS:-} ]]; then
    cat "$LISTS"
  elif command -v apt-cache >/dev/null; then
    apt-cache dumpavail
  fi
}

records() {
  awk -f "$here/records.awk" translating=1 <([[ -n ${LISTS:-} ]] || translations) translating=0 <(packages) |
    iconv -c -f UTF-8 -t UTF-8 | sort -t $'\t' -k1,1
}

# Sorts by the number in front of each row, keeps the first rows, and renames the file when it is complete.
place() {
  sort -t $'\t' -k1,1n -k2 | cut -f2- | awk -v rows="$2" 'NR <= rows' >"$out/$1.part"
  mv "$out/$1.part" "$out/$1"
}

mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
records >"$scratch/records"
count=$(wc -l <"$scratch/records")
if [[ -z ${LISTS:-} ]] && ((count < fewest)); then
  echo "prepare: the apt lists have only $count packages (apt-get update fetches them); using the sample instead" >&2
  cp "$here"/sample/*.jsonl "$out/"
  exit 0
fi
awk -f "$here/text.awk" -f "$here/pretrain.awk" "$scratch/records" | place pretrain.jsonl 1000000
awk -f "$here/text.awk" -f "$here/questions.awk" -v want=eval "$scratch/records" | place eval.jsonl "$eval_rows"
awk -f "$here/text.awk" -f "$here/choices.awk" pass=1 "$scratch/records" pass=2 "$scratch/records" |
  place sections.jsonl "$eval_rows"
awk -f "$here/text.awk" -f "$here/pretrain.awk" -v want=held_out "$scratch/records" |
  place descriptions.jsonl "$eval_rows"
awk -f "$here/text.awk" -f "$here/questions.awk" -v want=train "$scratch/records" | place train.jsonl "$train_rows"
wc -l "$out"/{pretrain,train,eval,sections,descriptions}.jsonl | awk -v n="$count" -v out="$out" \
  '/jsonl$/ { sub(/.*\//, "", $2); text = text ", " $1 " rows in " $2 } END { print "prepare: " out ": " n " packages" text }' >&2
