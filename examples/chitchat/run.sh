#!/usr/bin/env bash
# Tunes SmolLM2-135M-Instruct on real conversations. Shows the loss on held-out conversations, and replies, before and
# after. After an interruption, run the script again: training continues from the newest checkpoint.
# Usage: run.sh [key=value ...]   (overrides keys of tune.yaml)
set -euo pipefail
cd "$(dirname "$0")/../.."
fettle=${FETTLE:-build/fettle}
here=examples/chitchat
recipe=$here/tune.yaml
work=build/chitchat
tuned=$work/tuned
for word in "$@"; do [[ $word != output_dir=* ]] || tuned=${word#output_dir=}; done
say() { printf '\n== %s\n' "$*" >&2; }
trap 'say "stopped; run it again to go on from here"; exit 130' INT TERM

[[ -x $fettle ]] || { echo "$fettle is missing: run make build" >&2 && exit 1; }
model=$(examples/debian-helper/fetch_model.sh)
rows=$("$here/fetch_rows.sh")
[[ -s $work/train.jsonl && -s $work/eval.jsonl ]] || "$here/prepare" "$rows" "$work"
words=(model_name_or_path="$model" "$@")

say "training"
start=resume_from_checkpoint=true
compgen -G "$tuned/checkpoint-*" >/dev/null || start=overwrite_output_dir=true
"$fettle" train "$recipe" "${words[@]}" "$start"
say "60 pieces of held-out conversations, before and after"
"$fettle" eval "$recipe" "${words[@]}" adapter_name_or_path="$tuned" max_samples=60 eval_task=loss \
  output_dir="$work/evaluation"
say "the model before"
"$fettle" generate "$recipe" "${words[@]}" <"$here/questions.txt"
say "the model after"
"$fettle" generate "$recipe" "${words[@]}" adapter_name_or_path="$tuned" <"$here/questions.txt"
say "the adapter is in $tuned; talk to the tuned model with"
echo "$fettle chat $recipe model_name_or_path=$model adapter_name_or_path=$tuned" >&2
