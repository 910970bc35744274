#!/usr/bin/env bash
# Measures how fast the updates of offload_dir read and write, and compares this with the disk's own speed. Both move
# pieces of 1 MiB past the page cache, half reads and half writes, in a file whose blocks were all written before. In
# each round, fio measures the disk before and after a training run, because other programs may use the disk, too. The
# model has random weights; its AdamW state is 2.2 GB.
#
# usage: benchmarks/offload_dir.sh [FOLDER]      FOLDER is on the disk that is measured, by default /tmp
#        Environment variables: FETTLE is the program (build/fettle), ROUNDS the number of rounds (4), STEPS the number
#        of training steps in a round (6)
set -euo pipefail
cd "$(dirname "$0")/.."
program=${FETTLE:-build/fettle}
folder=$(mktemp -d "${1:-/tmp}/offload-dir-XXXXXX")
trap 'rm -rf "$folder"' EXIT
model=$folder/model
mkdir "$model"
cp tests/reference/models/llama/tokenizer*.json "$model"
python3 - tests/reference/models/llama/config.json "$model/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config.update(hidden_size=2048, intermediate_size=8192, num_hidden_layers=4, num_attention_heads=16,
              num_key_value_heads=16, head_dim=128)
json.dump(config, open(sys.argv[2], "w"))
PYTHON

direct() {
  fio --name=disk --filename="$folder/fio" --size=2g --bs=1m --direct=1 --ioengine=io_uring --iodepth=32 \
    --output-format=json "$@"
}
# Prints bytes/s, read and written together.
disk() {
  direct --rw=rw --time_based --runtime=5 | python3 -c 'import json, sys
job = json.load(sys.stdin)["jobs"][0]
print(job["read"]["bw_bytes"] + job["write"]["bw_bytes"])'
}

direct --rw=write >/dev/null
lscpu | sed -n 's/^Model name: *//p'
before=$(disk)
for ((round = 1; round <= ${ROUNDS:-4}; ++round)); do
  rm -rf "$folder/out"
  "$program" train model_name_or_path="$model" dataset=tests/reference/models/rows.jsonl output_dir="$folder/out" \
    train_from_scratch=true finetuning_type=full plugin=cpu cutoff_len=40 per_device_train_batch_size=1 \
    max_steps="${STEPS:-6}" save_strategy=no save_only_model=true plot_loss=false html_report=false \
    offload_dir="$folder/state" >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && exit 1; }
  after=$(disk)
  python3 - "$folder/log" "$before" "$after" <<'PYTHON'
import re, sys
line = next(line for line in open(sys.argv[1]) if "s of updates" in line)
size, unit, seconds = re.search(r"; after the first update: ([\d.]+) (\w+) in ([\d.]+) s of updates", line).groups()
rate = float(size) * {"MB": 1e6, "GB": 1e9, "TB": 1e12}[unit] / float(seconds)
disk = (float(sys.argv[2]) + float(sys.argv[3])) / 2
print(f"updates {rate / 1e9:.2f} GB/s, disk {float(sys.argv[2]) / 1e9:.2f} and {float(sys.argv[3]) / 1e9:.2f} GB/s: "
      f"{100 * rate / disk:.0f} %", flush=True)
PYTHON
  before=$after
done
