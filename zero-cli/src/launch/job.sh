#!/usr/bin/env bash
#SBATCH --job-name=zero-@SPEC@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@RANKS@
@GPUS@
#SBATCH --distribution=block:block
#SBATCH --exclusive
# A minute before the time is over, ranks are told to leave a checkpoint, where there is --checkpoint.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# The folder of --checkpoint, if there is one. Ranks are told how often the job has queued again, and go on from the newest checkpoint.
folder=@FOLDER@
newest() { ls -d "$folder"/step-* 2> /dev/null | tail -n 1; }
if [ -n "$folder" ]; then
  export ZERO_RESTART=${SLURM_RESTART_COUNT:-0}
  before=$(newest)
fi

# The binary must be reached under this path on all nodes, and an MPI too. With MPICH it is --mpi=pmi2. A rank that fails ends all.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block \
  @COMMAND@
code=$?

# The job goes on from its newest checkpoint where it was asked to end, or has lost a rank or a node; after such a loss only if it has
# come further than to where it began. After any other end, which it has told, another start would end like it.
if [ -n "$folder" ]; then
  case "$code" in
    0 | 2 | 74) ;;
    75) scontrol requeue "$SLURM_JOB_ID" ;;
    *) [ "$(newest)" = "$before" ] || scontrol requeue "$SLURM_JOB_ID" ;;
  esac
fi
exit "$code"
