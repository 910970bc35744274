#!/usr/bin/env bash
# Fuzzes every target for SECONDS each (default 60) with clang's libFuzzer, AddressSanitizer and UBSan. The
# environment variable JOBS is the number of targets that run at a time (default: the number of cores). New inputs are
# kept in FOLDER (default: `fuzz` in the cache), and the next run starts from them. When a target crashes, the script
# writes the input to FOLDER and fails.
# Without FETTLE_FUZZ_SEED, a run draws a new random seed. It prints the seed. To repeat a run, set FETTLE_FUZZ_SEED to that seed and start from the
# same inputs. The run then tries the same inputs in the same order, but their number depends on the machine's speed.
# Usage: tests/fuzz/run.sh [SECONDS [FOLDER [SUBJECT ...]]]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${FETTLE_FUZZ_BUILD:-$root/build/fuzz}
found=${2:-${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}/fuzz}
seed=${FETTLE_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
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
echo "fuzz: ${#subjects[@]} targets for $seconds s each, FETTLE_FUZZ_SEED=$seed, inputs in $found"

# Copies a subject's reference files to a folder. Fuzzing starts from them and from tests/fuzz/corpus.
copy_references() {
  local file reference=$root/tests/reference
  local files=()
  case $1 in
    columns) files=("$reference"/data/rows.{parquet,arrow,feather}) ;;
    config_json) files=("$reference"/models/*/config.json) ;;
    adapter_config) files=("$reference"/models/*/adapter_init/adapter_config.json "$reference"/models/llama/variants/*/adapter_config.json) ;;
  esac
  for file in "${files[@]}"; do
    cp "$file" "$2/$(cksum <"$file" | cut -d' ' -f1)"
  done
}

fuzz() {
  local subject=$1 log=$build/$1.log dictionary=$root/tests/fuzz/$1.dict starts=$build/starts/$1
  mkdir -p "$found/$subject" "$starts"
  copy_references "$subject" "$starts"
  local folders=("$found/$subject" "$starts")
  [[ ! -d $root/tests/fuzz/corpus/$subject ]] || folders+=("$root/tests/fuzz/corpus/$subject")
  [[ -f $dictionary ]] || dictionary=$root/tests/fuzz/json.dict
  if "$build/fuzz_$subject" -seed="$seed" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$found/$subject-" -dict="$dictionary" "${folders[@]}" \
    >"$log" 2>&1; then
    echo "fuzz: $subject, $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
  else
    tail -n 40 "$log"
    echo "fuzz: $subject FAILED with FETTLE_FUZZ_SEED=$seed; the input is in $found"
    return 1
  fi
}
export -f fuzz copy_references
export root seconds build found seed
printf '%s\n' "${subjects[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz {}'
