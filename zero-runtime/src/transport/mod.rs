//! Transport: what carries parameters, gradients, activations and numbers between ranks. Each collective is started and
//! waited for separately, in the order of the schedule. Never computes anything but the sums of a reduction, in the plan's
//! order.
//!
//! `shared` has the collectives for ranks that see one memory; `local` makes ranks of threads, `shm` of processes;
//! `emulated` makes either as slow as a network.
#![allow(unsafe_code)]

pub(crate) mod control;
mod doing;
pub mod emulated;
pub mod local;
mod parcels;
mod reduction;
mod shared;
pub mod shm;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use zero_plan::{Axis, Moved, Parcel};

use crate::arena::Arena;
use crate::device::{Cpu, Write};
use crate::view::View;

pub use emulated::{Emulated, Link};
pub use shared::Shared;

/// Another rank has given up, so what this one waits for never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} has ended")]
pub struct Lost {
    /// The rank that ended first.
    pub rank: usize,
}

/// The communication of a schedule. Calls come in the order of the ops of this rank's pipeline stage, as the engine makes
/// them: that ranks do not write what others read rests on schedules that have passed their check, on every rank.
///
/// # Safety
/// Whoever calls an unsafe method promises that: this rank's calls are those of its schedule, in its order, and so are
/// those of every other rank; and that a view of [`Transport::gathered`] is not used once its unit has been released, or
/// an exchange begun. Otherwise a rank may write what another one reads. [`crate::engine::Engine`] makes them so.
///
/// Whoever implements it promises what the engine hands out views on. The engine hands out views of the arena on the word of these calls: `wait` returns only when the flat buffer is whole
/// and nobody writes it before the next `exchange`; `claim` only when nobody reads the staging; `clear` only when nobody
/// reads the outgoing slot; `settle`, `combine`, `spread` and `receive` only when nobody else writes what they fill;
/// `exchange` only when all ranks have called it.
#[expect(clippy::missing_safety_doc, reason = "one promise for all calls, which the trait states")]
pub unsafe trait Transport<'p> {
    /// The arena of this rank.
    fn arena(&self) -> &Arc<Arena<'p>>;
    /// Tells that this rank's shard of a unit's parameters is new: peers may gather it.
    unsafe fn publish(&mut self, unit: usize);
    /// Starts to gather a unit's flat buffer along `zero`, into `slot` where layers compute on slots.
    unsafe fn gather(&mut self, unit: usize, slot: usize);
    /// Waits for a gather.
    unsafe fn wait(&mut self, unit: usize) -> Result<(), Lost>;
    /// Copies a unit's replica into `slot`, in the type that layers compute in.
    unsafe fn widen(&mut self, unit: usize, slot: usize);
    /// The parameters of a unit to compute on: gathered and waited for, or widened. The view ends with the next call, so
    /// it cannot outlive this rank's release.
    unsafe fn gathered(&self, unit: usize) -> View<'_, Cpu>;
    /// Gives a gathered or widened flat buffer up.
    unsafe fn release(&mut self, unit: usize);
    /// Waits until peers have read what lies in the staging of a bucket.
    unsafe fn claim(&mut self, bucket: usize) -> Result<(), Lost>;
    /// Starts to reduce-scatter the local gradients of a bucket along `zero`.
    unsafe fn reduce(&mut self, bucket: usize);
    /// Waits for that: this rank's shards of the sum overwrite or are added to its reduced gradients; where there are
    /// replicas, they become the start of a sum over those.
    unsafe fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost>;
    /// Sums this rank's parts of a bucket along `replica`.
    unsafe fn combine(&mut self, bucket: usize, write: Write) -> Result<(), Lost>;
    /// Adds the summed gradients of a tied unit on this pipeline stage to those of its owner.
    unsafe fn fold(&mut self, unit: usize);
    /// Gathers what the ranks along `axis` have summed of a bucket.
    unsafe fn spread(&mut self, bucket: usize, axis: Axis) -> Result<(), Lost>;
    /// Waits until the next outgoing slot for parcels of this kind is free, and gives its number.
    unsafe fn clear(&mut self, parcel: Parcel) -> Result<(), Lost>;
    /// Which outgoing slot the next parcel of this kind lies in.
    fn outgoing_slot(&self, parcel: Parcel) -> usize;
    /// Starts to send what `unit` has made, `len` elements of it.
    unsafe fn send(&mut self, parcel: Parcel, unit: usize, len: usize);
    /// Waits for a parcel for `unit` and takes `len` elements to `to`, counted from the start of the region that parcels
    /// of this kind go to; what is tied has a place of its own.
    unsafe fn receive(&mut self, parcel: Parcel, unit: usize, to: usize, len: usize) -> Result<(), Lost>;
    /// Gathers as many numbers of each rank into `all` as `mine` has, in the order of ranks. No rank returns before all
    /// have called.
    ///
    /// # Panics
    /// On every rank, unless all have called it for the same reason: `call`, a number that the caller gives it.
    unsafe fn exchange(&mut self, call: u64, mine: &[f64], all: &mut [f64]) -> Result<(), Lost>;
    /// Bytes of parameters, gradients, activations and numbers that this rank has taken from its peers so far: counted
    /// where they were copied or read, not computed from the plan.
    fn moved(&self) -> Moved;
}
