#!/usr/bin/env bash
# Fetches the encoder, makes the rows, tunes, and evaluates on held-out packages: metrics of each label and the
# confusion table.
# Usage: run.sh [RECIPE.yaml] [key=value ...]      RECIPE: tune.yaml (all weights) or lora.yaml
set -euo pipefail
cd "$(dirname "$0")/../.."
here=examples/debian-sections
fettle=${FETTLE:-build/fettle}
work=build/debian-sections
recipe=$here/tune.yaml
[[ ${1:-} != *.yaml ]] || { recipe=$1 && shift; }
out=$(sed -n 's/^output_dir: //p' "$recipe")
for word in "$@"; do [[ $word != output_dir=* ]] || out=${word#output_dir=}; done
say() { printf '\n== %s\n' "$*" >&2; }

[[ -x $fettle ]] || { echo "$fettle is missing: run make build" >&2 && exit 1; }
model=$("$here/fetch_model.sh")
[[ -s $work/train.jsonl && -s $work/eval.jsonl ]] || "$here/prepare.sh" "$work"

say "training"
"$fettle" train "$recipe" model_name_or_path="$model" "$@"
say "the tuned model on held-out packages"
tuned=(model_name_or_path="$out")
[[ ! -e $out/adapter_config.json ]] || tuned=(model_name_or_path="$model" adapter_name_or_path="$out")
"$fettle" eval "$recipe" "${tuned[@]}" "$@" output_dir="$out/evaluation"
say "the model is in $out, with confusion.svg and classification_report.txt; $out/evaluation/predictions.jsonl has the label of each row"
