#!/usr/bin/env bash
# Open MPI: run this on one host. The file `hosts` has a line for each host: "gpu01 slots=1".
# On SIGTERM or Ctrl-C, mpirun passes SIGTERM on after 60 s, and kills all processes 60 s later. So there is time for
# the current step and a checkpoint; raise the number if they take longer. Without this setting, mpirun waits 1 s. If a
# process fails, mpirun waits the same 2 x 60 s before it ends.
exec mpirun --hostfile hosts -N 1 --bind-to none --mca odls_base_sigkill_timeout 60 \
  fettle train tune.yaml resume_from_checkpoint=true
