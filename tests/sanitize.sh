#!/usr/bin/env bash
# Runs the tests of src/base, of the data pipeline with its prefetcher, of checkpoints and of the checkpoint writer,
# first under AddressSanitizer with UBSan, then under ThreadSanitizer. `data` leaves out checkpoints and their writer,
# because the writer's tests need the whole program to be compiled.
# Libraries such as the plugin and Arrow are not instrumented, so their own code is not checked. Leaks are not checked.
# Usage: tests/sanitize.sh [data|all] [address|thread ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-all}
shift $(($# > 0))
kinds=("$@")
((${#kinds[@]} > 0)) || kinds=(address thread)
# Test programs, each with the filter of its tests. Tests that fork run in a program of their own, because
# ThreadSanitizer does not allow a fork after threads were started. Two tests are left out: one measures memory, which
# sanitizers also use, and one raises a signal that sanitizers handle.
data_forks=Cache.ProcessesMayFillItTogether
checkpoint_forks=OneRun.*:AtomicFolder.ACrashLeavesNothingUnderTheName
runs=("test_correct_base *" "test_error_data *" "test_correct_data -$data_forks" "test_correct_data $data_forks")
if [[ $what == all ]]; then
  runs+=("test_correct_checkpoint -LoadRow.HoldsFewPiecesInHostMemory:$checkpoint_forks"
    "test_correct_checkpoint $checkpoint_forks" "test_error_checkpoint -Truncated.OtherBusErrorsStillKill"
    "test_correct_train CheckpointWriter.*")
fi
mapfile -t programs < <(printf '%s\n' "${runs[@]% *}" | sort -u)
export ASAN_OPTIONS=detect_leaks=0
export TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1"
failed=0
for kind in "${kinds[@]}"; do
  build=$root/build/$kind
  cmake -S "$root" -B "$build" -G Ninja -DFETTLE_SANITIZE="$kind" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${programs[@]}" fettle_columns fettle_pmix
  for run in "${runs[@]}"; do
    read -r program filter <<<"$run"
    log=$build/$program.log
    if timeout 300 "$build/$program" --gtest_filter="$filter" >"$log" 2>&1; then
      echo "sanitize: $kind: $program $filter: $(grep -c '^\[       OK' "$log") tests, nothing found"
    else
      grep -E 'FAILED|Sanitizer|runtime error' "$log" | head -n 20
      echo "sanitize: $kind: $program $filter FAILED, see $log"
      failed=1
    fi
  done
done
exit "$failed"
