#!/usr/bin/env bash
# torchrun: run this on each host with the host's number: ./torchrun.sh 0 on gpu01, ./torchrun.sh 1 on gpu02.
# After SIGTERM, torchrun waits so many seconds for the current step and a checkpoint (before PyTorch 2.12 always 30).
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=300
exec torchrun --no-python --nnodes 2 --node-rank "$1" --nproc-per-node 1 --master-addr gpu01 \
  fettle train tune.yaml resume_from_checkpoint=true
