#!/usr/bin/env bash
# Fuzzes every target for SECONDS each (default 60) with clang's libFuzzer, AddressSanitizer and UBSan, JOBS targets at
# a time (default: the number of cores). New inputs go to FOLDER (default build/fuzz/corpus). When a target crashes, its
# input stays there and the script fails. With FETTLE_FUZZ_SEED, the inputs are reproducible, as far as they get in the
# time.
# Usage: tests/fuzz/run.sh [SECONDS [FOLDER [SUBJECT ...]]]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${FETTLE_FUZZ_BUILD:-$root/build/fuzz}
found=${2:-$build/corpus}
jobs=${JOBS:-$(nproc)}
shift $(($# < 2 ? $# : 2))
subjects=("$@")
if ((${#subjects[@]} == 0)); then
  for source in "$root"/tests/fuzz/*_fuzz.cpp; do
    subjects+=("$(basename "$source" _fuzz.cpp)")
  done
fi
flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1"
cmake -S "$root" -B "$build" -G Ninja -DFETTLE_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
cmake --build "$build" --parallel "$jobs" --target "${subjects[@]/#/fuzz_}"
mkdir -p "$found"

fuzz() {
  local subject=$1 dictionary=$root/tests/fuzz/$1.dict log=$found/$1.log
  mkdir -p "$found/$subject"
  if "$build/fuzz_$subject" -seed="${FETTLE_FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$found/$subject-" -dict="$dictionary" "$found/$subject" "$root/tests/fuzz/corpus/$subject" \
    >"$log" 2>&1; then
    echo "fuzz: $subject, $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
  else
    tail -n 40 "$log"
    echo "fuzz: $subject FAILED, the input is in $found"
    return 1
  fi
}
export -f fuzz
export root seconds build found
printf '%s\n' "${subjects[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz {}'
