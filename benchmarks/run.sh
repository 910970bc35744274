#!/usr/bin/env bash
# Compares Fettle with Transformers + PEFT and with plain JAX (bench.py). Writes benchmarks/DATE-CPU.md.
#
# usage: benchmarks/run.sh [options of bench.py]
#        The variable FETTLE names the program, by default build/fettle
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(tests/reference/python_env.sh)
models=${FETTLE_CACHE:-$HOME/.cache/fettle}/benchmarks
mkdir -p "$models"
cpu=$(grep -q avx512_bf16 /proc/cpuinfo && echo avx512-bf16 || { grep -q avx512f /proc/cpuinfo && echo avx512 || echo avx2; })
[[ " $* " == *" --avx2 "* ]] && cpu=limited-to-avx2
"$python" benchmarks/bench.py --jax-python="$(benchmarks/jax_env.sh)" "${FETTLE:-build/fettle}" "$models" "benchmarks/$(date +%F)-$cpu.md" "$@"
