#!/usr/bin/env bash
# Tunes the example's base model on questions about this machine's packages and shows what changed: metrics before and
# after, also on tasks that were not trained, and three questions to both models.
# Usage: run.sh [key=value ...]   (overrides keys of tune.yaml)
set -euo pipefail
cd "$(dirname "$0")/../.."
fettle=${FETTLE:-build/fettle}
recipe=examples/debian-helper/tune.yaml
work=build/debian-helper
overrides=("$@")
tuned=$work/tuned
for word in "$@"; do [[ $word != output_dir=* ]] || tuned=${word#output_dir=}; done
questions=(
  "Which section does the package libjson-simple-perl (Perl module to read and write JSON) belong to?"
  "Which package is this: Python 3 library to read and write spreadsheets?"
  "What is golang-github-example-logger-dev for?"
)
# Headings go to stderr, like the program's own messages.
say() { printf '\n== %s\n' "$*" >&2; }
# Prints the model's answer on one line; the program's messages are shown only if it fails.
answer() {
  local question=$1
  shift
  "$fettle" generate "$recipe" prompt="$question" "${overrides[@]}" "$@" 2>"$work/generate.log" | tr '\n' ' ' ||
    { cat "$work/generate.log" >&2 && return 1; }
}

[[ -x $fettle ]] || { echo "$fettle is missing: run make build" >&2 && exit 1; }
[[ -s $work/train.jsonl && -s $work/descriptions.jsonl ]] || examples/debian-helper/prepare.sh "$work"

say "the base model on held-out questions"
"$fettle" eval "$recipe" "$@"
say "training"
"$fettle" train "$recipe" "$@"
say "base and tuned model: held-out questions, choices of sections, and the base model's earlier abilities"
"$fettle" eval "$recipe" adapter_name_or_path="$tuned" \
  eval_dataset="$work/eval.jsonl,$work/sections.jsonl,$work/descriptions.jsonl" "$@"
say "three questions"
for question in "${questions[@]}"; do
  before=$(answer "$question")
  after=$(answer "$question" adapter_name_or_path="$tuned")
  printf '\nquestion: %s\n   base:  %s\n   tuned: %s\n' "$question" "$before" "$after"
done
say "the adapter and the loss plot (training_loss.png) are in $tuned; talk to the tuned model with"
echo "$fettle chat $recipe adapter_name_or_path=$tuned" >&2
