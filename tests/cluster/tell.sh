#!/usr/bin/env bash
# Becomes a rank's program, and writes what that tells to a file of the rank's own: what launchers make of it is theirs.
#
#   tell.sh FOLDER PROGRAM ARGUMENT...
set -euo pipefail

folder=$1
shift
exec "$@" 2> "$folder/${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}"
