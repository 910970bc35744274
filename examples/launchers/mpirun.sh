#!/usr/bin/env bash
# Open MPI: run this on one host. The file `hosts` has a line for each host: "gpu01 slots=1".
exec mpirun --hostfile hosts -N 1 --bind-to none fettle train tune.yaml resume_from_checkpoint=true
