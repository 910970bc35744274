#!/usr/bin/env bash
# Prints the file of the Chit-Chat data set (BYU PCC lab, MIT licence): 7,168 conversations between students. The first
# run downloads it as part of a Python wheel (8 MB). Usage: fetch_rows.sh
set -euo pipefail
scripts=$(dirname "$0")/../../scripts
folder=$("$scripts/fetch_wheel.sh" chitchat-dataset==0.9.0 7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e "8 MB")
echo "$folder/chitchat_dataset/dataset.json"
