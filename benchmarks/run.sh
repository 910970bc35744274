#!/usr/bin/env bash
# Compares Fettle with Transformers + PEFT: LoRA on random models of the 135M shape. Speed and memory are ratios of
# alternating runs. Prints a Markdown table and keeps it in benchmarks/results/.
#
# usage: benchmarks/run.sh [options of compare.py]          FETTLE names the program, by default build/fettle
set -euo pipefail
cd "$(dirname "$0")/.."
fettle=${FETTLE:-build/fettle}
python=$(tests/reference/python_env.sh)
models=${FETTLE_CACHE:-$HOME/.cache/fettle}/benchmarks
"$python" benchmarks/make_model.py "$models/135m-bf16" --dtype bfloat16 >&2
"$python" benchmarks/make_model.py "$models/135m-f32" --dtype float32 >&2
mkdir -p benchmarks/results
"$python" benchmarks/compare.py "$fettle" "$models/135m-bf16" "$models/135m-f32" "$@" |
  tee "benchmarks/results/lora-135m-$(nproc)-cores.md.part"
mv benchmarks/results/lora-135m-"$(nproc)"-cores.md{.part,}
