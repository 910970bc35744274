#!/usr/bin/env bash
# Tunes SmolLM2-135M-Instruct on questions about this machine's packages, shows figures and replies of held-out
# questions before and after, and exports the tuned model. After an interruption, run the script again: it continues
# where it stopped, and does not repeat finished parts.
# Usage: run.sh [key=value ...]   (overrides keys of tune.yaml)
set -euo pipefail
cd "$(dirname "$0")/../.."
fettle=${FETTLE:-build/fettle}
here=examples/debian-helper
recipe=$here/tune.yaml
work=build/debian-helper
tuned=$work/tuned
for word in "$@"; do [[ $word != output_dir=* ]] || tuned=${word#output_dir=}; done
# Headings go to stderr, like the program's own messages.
say() { printf '\n== %s\n' "$*" >&2; }
trap 'say "stopped; run it again to go on from here"; exit 130' INT TERM

[[ -x $fettle ]] || { echo "$fettle is missing: run make build" >&2 && exit 1; }
model=$("$here/fetch_model.sh")
[[ -s $work/train.jsonl && -s $work/eval.jsonl ]] || "$here/prepare.sh" "$work"
words=(model_name_or_path="$model" "$@")

say "training"
# If the rows, the recipe and the words are those of the earlier run, that run continues. Otherwise, a new run starts.
settings=$({ printf '%s\n' "${words[@]}"; cat "$recipe" "$work"/{train,eval}.jsonl; } | sha256sum)
start=resume_from_checkpoint=true
[[ $settings == "$(cat "$work/settings" 2>/dev/null)" ]] && compgen -G "$tuned/checkpoint-*" >/dev/null ||
  start=overwrite_output_dir=true
[[ $start != overwrite* ]] || rm -rf "$tuned"/checkpoint-* "$work/figures.txt" "$work/merged"
echo "$settings" >"$work/settings"
"$fettle" train "$recipe" "${words[@]}" "$start"

say "held-out questions, and general knowledge: the model before and after"
if [[ ! -s $work/figures.txt ]]; then
  "$fettle" eval "$recipe" "${words[@]}" adapter_name_or_path="$tuned" output_dir="$work/evaluation" \
    eval_dataset="$work/eval.jsonl,$work/eval.jsonl,$here/general.jsonl" eval_task=loss,generation,choice \
    >"$work/figures.txt.part"
  "$here/show_replies" "$work/evaluation/generated_predictions.jsonl" >>"$work/figures.txt.part"
  mv "$work/figures.txt.part" "$work/figures.txt"
fi
cat "$work/figures.txt"

say "export: base and adapter as one model"
[[ -e $work/merged ]] ||
  "$fettle" export "$recipe" "${words[@]}" adapter_name_or_path="$tuned" export_dir="$work/merged"

say "the adapter and the loss plot (training_loss.png) are in $tuned, the merged model is in $work/merged; talk to it with"
echo "$fettle chat $recipe model_name_or_path=$work/merged" >&2
