#!/usr/bin/env bash
# Makes rows from this machine's apt lists: train.jsonl to train on, eval.jsonl to measure. The same lists give the same
# files. If the lists have too few packages, copies the sample. Usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]
# LISTS=FILE reads that file of package records instead of apt's lists.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: prepare.sh FOLDER [TRAIN_ROWS [EVAL_ROWS]]}
train_rows=${2:-320}
eval_rows=${3:-48}
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
  awk -f "$here/text.awk" -f "$here/questions.awk" -v want="$1" "$scratch/records" |
    sort -t $'\t' -k1,1n -k2 | cut -f2- | awk -v rows="$2" 'NR <= rows' >"$out/$1.jsonl.part"
  mv "$out/$1.jsonl.part" "$out/$1.jsonl"
}

mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
packages | awk -f "$here/records.awk" | iconv -c -f UTF-8 -t UTF-8 | sort -t $'\t' -k1,1 >"$scratch/records"
count=$(wc -l <"$scratch/records")
if [[ -z ${LISTS:-} ]] && ((count < fewest)); then
  echo "prepare: the apt lists have only $count packages (apt-get update fetches them); using the sample instead" >&2
  cp "$here"/sample/*.jsonl "$out/"
  exit 0
fi
place eval "$eval_rows"
place train "$train_rows"
echo "prepare: $out: $count packages, $(wc -l <"$out/train.jsonl") rows in train.jsonl, $(wc -l <"$out/eval.jsonl") in eval.jsonl" >&2
