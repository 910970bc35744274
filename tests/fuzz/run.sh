#!/usr/bin/env bash
# Fuzzes every target for SECONDS each (default 60) with clang's libFuzzer, AddressSanitizer and UBSan.
# New inputs go to FOLDER (default build/fuzz/corpus); a crash leaves its input there and fails.
# Usage: tests/fuzz/run.sh [SECONDS [FOLDER]]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${FETTLE_FUZZ_BUILD:-$root/build/fuzz}
found=${2:-$build/corpus}
flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
cmake -S "$root" -B "$build" -G Ninja -DFETTLE_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
targets=()
for source in "$root"/tests/fuzz/*_fuzz.cpp; do
  targets+=("fuzz_$(basename "$source" _fuzz.cpp)")
done
cmake --build "$build" --parallel "${JOBS:-2}" --target "${targets[@]}"
for target in "${targets[@]}"; do
  subject=${target#fuzz_}
  mkdir -p "$found/$subject"
  echo "fuzzing $subject for $seconds s" >&2
  "$build/$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$found/$subject-" -dict="$root/tests/fuzz/$subject.dict" "$found/$subject" "$root/tests/fuzz/corpus/$subject"
done
