#!/usr/bin/env bash
#SBATCH --job-name=zero-hosts
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --distribution=block:block
#SBATCH --exclusive
# A minute before the time is over, ranks are told to leave a checkpoint, where there is --checkpoint.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# The binary must be reached under this path on all nodes, and an MPI too. With MPICH it is --mpi=pmi2.
# How often it has queued again: ranks then go on from their newest checkpoint.
export ZERO_RESTART=${SLURM_RESTART_COUNT:-0}
newest() { ls -d /shared/run/step-* 2> /dev/null | tail -n 1; }
before=$(newest)

# A rank that fails ends all.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block \
  /shared/hosts --data /shared/text --checkpoint /shared/run --steps 100000000 --sample 0 --held-out 0
code=$?

# It goes on from its newest checkpoint where it was asked to end, or has lost a rank or a node; after such a loss only if it has come
# further than to where it began. After any other end, which it has told, another start would end like it.
case "$code" in
  0 | 2 | 74) ;;
  75) scontrol requeue "$SLURM_JOB_ID" ;;
  *) [ "$(newest)" = "$before" ] || scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit "$code"
