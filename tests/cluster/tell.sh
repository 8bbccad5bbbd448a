#!/usr/bin/env bash
# Becomes a rank's program, with standard error in a file of the rank's own, so that launchers cannot change or lose it.
#
#   tell.sh FOLDER PROGRAM ARGUMENT...
set -euo pipefail

folder=$1
shift
exec "$@" 2> "$folder/${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}"
