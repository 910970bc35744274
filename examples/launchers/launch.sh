#!/usr/bin/env bash
# ssh without any launcher: run this on one host. --hosts has the names that ssh knows.
exec fettle launch --hosts gpu01,gpu02 tune.yaml resume_from_checkpoint=true
