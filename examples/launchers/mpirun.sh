#!/usr/bin/env bash
# Open MPI: run this on one host. The file `hosts` has a line for each host: "gpu01 slots=1".
# On SIGTERM or Ctrl-C, mpirun passes SIGTERM on after 120 s, and kills all processes 120 s later. So there is time for
# the current step and a checkpoint. Without this setting, it waits 1 s.
exec mpirun --hostfile hosts -N 1 --bind-to none --mca odls_base_sigkill_timeout 120 \
  fettle train tune.yaml resume_from_checkpoint=true
