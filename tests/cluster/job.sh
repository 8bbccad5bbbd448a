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
# A rank that fails ends all.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block \
  /shared/hosts --data /shared/text --checkpoint /shared/run --steps 100000000 --sample 0 --held-out 0 ${SLURM_RESTART_COUNT:+--resume}
code=$?

# It was asked to end and has left a checkpoint: it goes on from there.
if [ "$code" = 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
