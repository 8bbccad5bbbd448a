//! Transport: what carries parameters, gradients and numbers between ranks. Each collective is started and waited for
//! separately, in the order of the schedule. Never computes anything but the sums of a reduction, in the plan's order.
//!
//! `shared` has the collectives for ranks that see one memory; `local` makes ranks of threads, `shm` of processes.
#![allow(unsafe_code)]

pub(crate) mod control;
pub mod local;
mod shared;
pub mod shm;

use std::sync::Arc;

use zero_plan::Traffic;

use crate::arena::Arena;
use crate::device::{Cpu, Write};
use crate::view::View;

pub use shared::Shared;

/// Another rank has given up, so what this one waits for never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} has ended")]
pub struct Lost {
    /// The rank that ended first.
    pub rank: usize,
}

/// The collectives of a schedule. Calls come in the order of the plan's ops, the same on all ranks.
///
/// # Safety
/// The engine hands out views of the arena on the word of these calls: `wait` returns only when the flat buffer is whole
/// and nobody writes it before the next `exchange`; `claim` only when nobody reads the staging; `settle` and `spread` only
/// when nobody else writes what they fill; `exchange` only when all ranks have called it.
pub unsafe trait Transport<'p> {
    /// The arena of this rank.
    fn arena(&self) -> &Arc<Arena<'p>>;
    /// Tells that this rank's shard of a unit's parameters is new: peers may gather it.
    fn publish(&mut self, unit: usize);
    /// Starts to gather a unit's flat buffer, into `slot` where gathers are copied.
    fn gather(&mut self, unit: usize, slot: usize);
    /// Waits for a gather.
    fn wait(&mut self, unit: usize) -> Result<(), Lost>;
    /// The flat buffer of a unit whose gather has been waited for. The view ends with the next call, so it cannot
    /// outlive the release.
    fn gathered(&self, unit: usize) -> View<'_, Cpu>;
    /// Gives a gathered flat buffer up.
    fn release(&mut self, unit: usize);
    /// Waits until peers have read what lies in the staging of a bucket.
    fn claim(&mut self, bucket: usize) -> Result<(), Lost>;
    /// Starts to reduce-scatter the local gradients of a bucket.
    fn reduce(&mut self, bucket: usize);
    /// Waits for a reduce-scatter: this rank's shards of the sum overwrite or are added to its reduced gradients.
    fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost>;
    /// Gathers the summed shards of a bucket.
    fn spread(&mut self, bucket: usize) -> Result<(), Lost>;
    /// Gathers two numbers of each rank into `all`, in the order of ranks. No rank returns before all have called.
    fn exchange(&mut self, mine: [f64; 2], all: &mut [[f64; 2]]) -> Result<(), Lost>;
    /// Bytes of parameters, gradients and numbers that this rank has sent so far.
    fn sent(&self) -> Traffic;
}
