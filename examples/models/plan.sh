#!/usr/bin/env bash
# Plans a training step of models in this folder on H100 and MI300X. Prints a Markdown table, such as
# that in ../newer-models/README.md.
# usage: examples/models/plan.sh FETTLE [MODEL...]; without MODEL, all models
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1
shift
large="deepseek-v3 deepseek-v3-fp8 kimi-k2 llama-4-scout llama3.1-405b gpt-oss-120b minimax-m2 qwen3-next-80b-a3b glm-4.5-air llama2-70b"
experts="deepseek-v3 deepseek-v3-fp8 kimi-k2 llama-4-scout gpt-oss-120b minimax-m2 qwen3-next-80b-a3b glm-4.5-air"

# cells MODEL TARGET WORD...: plans, and prints the cells of one target
cells() {
  local model=$1 target=$2 out
  shift 2
  out=$("$program" plan --json --target "$target" "model_name_or_path=examples/models/$model" "$@") || [ $? = 2 ] || true
  python3 - "$out" <<'PY'
import json, sys

try:
    plan = json.loads(sys.argv[1])
except ValueError:
    print("failed | |", end=" ")
    sys.exit()
device, step = plan["per_device"], plan["step"]
peak, limit = device["peak_bytes"] / 1e9, device["limit_bytes"] / 1e9
print(f"{peak:.1f} GB, {100 * peak / limit:.0f} %{'' if plan['fits'] else ': too much'} | {step['schedule']['tokens_per_second']:,.0f} |", end=" ")
PY
}

[ $# -gt 0 ] || set -- $(cd examples/models && ls -d */ | tr -d /)
echo "| model | devices | H100: peak of a device, share of the limit | tokens/s | MI300X: peak of a device, share of the limit | tokens/s |"
echo "|---|---|---|---|---|---|"
for model; do
  words=(stage=sft packing=true)
  [ "$model" != modernbert-large ] || words=(stage=cls num_labels=2)
  words+=(finetuning_type=lora lora_rank=8 lora_target=all bf16=true gradient_checkpointing=full cutoff_len=2048)
  count=1
  words+=(per_device_train_batch_size=1 gradient_accumulation_steps=8)
  if [[ " $large " == *" $model "* ]]; then
    count=8
    words=("${words[@]/gradient_accumulation_steps=8/gradient_accumulation_steps=1}")
    if [[ " $experts " == *" $model "* ]]; then
      words=("${words[@]/per_device_train_batch_size=1/per_device_train_batch_size=8}" mesh=ep=8)
    fi
  fi
  echo "| \`$model\` | $count | $(cells "$model" "h100:$count" "${words[@]}")$(cells "$model" "mi300x:$count" "${words[@]}")"
done
