#!/usr/bin/env bash
# Runs the tests of ops, adapters, update rules, training and generation on a real device, against the same recorded
# values and with the same bounds as on the CPU.
#
# usage: tests/on_device.sh PLUGIN [BUILD] [OUT]
#
# PLUGIN is a name or a file, as the recipe's key `plugin`. BUILD has the test programs (by default build), OUT gets
# their output (by default BUILD/on_device). JOBS test programs run at once (by default 8); each takes 4 % of the
# device's memory. By default, the plugin does not measure programs to find the fastest (XLA_FLAGS), because that takes
# longer than the tests. Exits with 1 if a test fails or none passes.
set -u
plugin=${1:?usage: tests/on_device.sh PLUGIN [BUILD] [OUT]} build=${2:-build}
out=${3:-$build/on_device} jobs=${JOBS:-8}
export FETTLE_TEST_PLUGIN=$plugin XLA_FLAGS=${XLA_FLAGS---xla_gpu_autotune_level=0}
mkdir -p "$out"
rm -f "$out"/*.txt

# These tests need several devices, call functions that only the CPU plugin has, expect the memory of the CPU, or expect
# that products too small for a GPU's 8-bit arithmetic are rounded to 8 bits.
left_out='Composite.*:CustomCall.*:*Memory*:MultiOutput.*:Float8.ALinearLayerRoundsLikePyTorch'

run_shard() {  # PROGRAM SHARD
  local output; output=$out/$(basename "$1")-$2.txt
  GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$2 "$1" --gtest_filter="-$left_out" >"$output" 2>&1
  code=$?
  [ $code -eq 0 ] || grep -q '^\[  FAILED  \]' "$output" ||
    echo "[  FAILED  ] $(basename "$1"): part $2 ended with code $code" >>"$output"
}
export -f run_shard
export jobs out left_out

for name in graph adapters optim step generate; do
  for ((i = 0; i < jobs; ++i)); do printf '%s\0%s\0' "$build/test_correct_$name" $i; done
done | xargs -0 -n 2 -P "$jobs" bash -c 'run_shard "$1" "$2"' _

passed=$(cat "$out"/*.txt | grep -c '^\[       OK \]')
grep -h '^\[  FAILED  \]' "$out"/*.txt | grep -v 'listed below\|tests\?, listed' |
  sed 's/, where GetParam.*//; s/ ([0-9]* ms)$//' | sort -u >"$out/failed"
cat "$out/failed"
echo "$passed passed, $(wc -l <"$out/failed") failed; output in $out"
[ "$passed" -gt 0 ] && [ ! -s "$out/failed" ]
