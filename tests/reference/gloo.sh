#!/usr/bin/env bash
# Trains one step with Fettle in one process with four devices, records its programs with their arguments and results,
# and runs the same programs with jaxlib in one and in two processes, with gloo between them. All compile with the same
# XLA_FLAGS: jaxlib and Fettle's plugin then give equal bits, but other optimisation levels differ by 4e-5.
# Usage: tests/reference/gloo.sh BUILD
set -euo pipefail
export XLA_FLAGS=--xla_backend_optimization_level=0
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
python=$("$root/scripts/python_with.sh" "$root/benchmarks/requirements-jax.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
inner=$("$build/fettle" devices plugin=cpu | sed -n 's/^plugin cpu (\(.*\)), PJRT.*/\1/p')
for kind in "lora mesh=fsdp=2,tp=2" "full mesh=dp=2,fsdp=2" "lora mesh=fsdp=2,sp=2"; do
  read -r method mesh <<<"$kind"
  record=$work/$method-${mesh//[=,]/}
  mkdir "$record"
  FETTLE_INNER_PLUGIN=$inner SEVERAL_RECORD=$record "$build/fettle" --quiet train \
    model_name_or_path="$here/models/llama" dataset="$here/models/rows.jsonl" output_dir="$record/out" cutoff_len=40 \
    plugin="$build/tests/several_cpu_plugin.so" finetuning_type="$method" "$mesh" per_device_train_batch_size=2 \
    learning_rate=0.002 warmup_steps=0 max_steps=1 save_strategy=no kernels=off compile_cache=off \
    data_cache="$work/rows"
  for processes in 1 2; do
    echo "$method, $mesh, $processes processes"
    port=$((20000 + RANDOM % 20000))
    started=()
    for ((rank = 0; rank < processes; ++rank)); do
      "$python" "$here/gloo.py" "$record" 4 $processes $rank $port &
      started+=($!)
    done
    for process in "${started[@]}"; do wait "$process"; done
  done
done
