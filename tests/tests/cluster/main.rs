//! Ranks of several hosts, which are parts of one machine: the same bits as on one host, the planned bytes on the network, and
//! faults that every remaining host reports.

mod back;
mod bits;
mod bytes;
mod faults;
mod nccl;
mod net;
mod network;
mod profile;
mod slurm;
mod start;
mod torchrun;

use std::path::PathBuf;

/// A text to train on.
fn text() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))
}
