#!/usr/bin/env bash
# Measures the streamed loading of a random model of 4.6 GB (bf16, several files) on one CPU device and on eight: speed
# and host memory besides the mapped files, as a Markdown table. The model is stored in the cache folder.
#
# usage: benchmarks/loading.sh
#        The variable BENCH_LOADING names the program, by default build/bench_loading
set -euo pipefail
cd "$(dirname "$0")/.."
program=${BENCH_LOADING:-build/bench_loading}
model=${FETTLE_CACHE:-$HOME/.cache/fettle}/benchmarks/2b-bf16
"$(tests/reference/python_env.sh)" benchmarks/make_model.py "$model" --hidden 2560 --layers 32 --heads 20 --kv-heads 4 \
  --mlp 6912 --vocab 32000 --shard 1GB >&2
echo "| devices | from | read | time | speed | copy rate | speed / copy rate | host memory above the mapped files | largest share of a device |"
echo "|---|---|---|---|---|---|---|---|---|"
for devices in 1 8; do
  for cold in --cold ""; do
    "$program" ${cold:+"$cold"} model_name_or_path="$model" plugin=cpu device_count=$devices bf16=true \
      lora_rank=8 compile_cache=off
  done
done
