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
cpu=avx2
for extension in avx512f avx512_bf16 amx_bf16; do grep -qw $extension /proc/cpuinfo && cpu=${extension/_/-}; done
for set in avx2 avx512_bf16; do [[ " $* " =~ " --isa"[=\ ]$set" " ]] && cpu=limited-to-${set/_/-}; done
"$python" benchmarks/bench.py --jax-python="$(scripts/python_with.sh benchmarks/requirements-jax.txt)" "${FETTLE:-build/fettle}" "$models" "benchmarks/$(date +%F)-$cpu.md" "$@"
