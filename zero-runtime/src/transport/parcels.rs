//! Parcels: what crosses to another pipeline stage. The sender leaves it in a slot that the receiver copies it from; what is
//! tied is read where it lies.
#![allow(unsafe_code)]

use zero_plan::layout::OUTGOING_SLOTS;
use zero_plan::{Axis, Kind, Moved, Parcel};

use super::Lost;
use super::shared::{Place, Shared};
use crate::device::Write;

impl Shared<'_> {
    /// The pipeline stage that parcels go to that `stage` sends.
    fn receiver(&self, parcel: Parcel) -> usize {
        let plan = self.arena.plan();
        let (stage, stages) = (self.at().pipeline, plan.config.mesh.pipeline);
        let tied = plan.units.len() - 1;
        match parcel {
            Parcel::Activations => (stage + 1) % stages,
            Parcel::Gradients => (stage + stages - 1) % stages,
            Parcel::TiedGradients => plan.placements[plan.units[tied].source].stage,
            Parcel::TiedParameters => plan.placements[tied].stage,
        }
    }

    /// The pipeline stage that parcels come from.
    fn sender(&self, parcel: Parcel) -> usize {
        self.receiver(match parcel {
            Parcel::Activations => Parcel::Gradients,
            Parcel::Gradients => Parcel::Activations,
            Parcel::TiedGradients => Parcel::TiedParameters,
            Parcel::TiedParameters => Parcel::TiedGradients,
        })
    }

    /// Where the next parcel lies.
    pub(super) fn next_outgoing(&self, parcel: Parcel) -> usize {
        self.parcels_sent[parcel as usize] as usize % OUTGOING_SLOTS
    }

    /// Waits until the receiver has taken what lies where the next parcel is to.
    pub(super) fn wait_for_outgoing(&self, parcel: Parcel) -> Result<(), Lost> {
        let sent = self.parcels_sent[parcel as usize];
        let receiver = self.along(Axis::Pipeline, self.receiver(parcel));
        let count = sent.wrapping_add(1).wrapping_sub(OUTGOING_SLOTS as u32);
        self.await_signal(receiver, |receiver| &receiver.taken[parcel as usize], count)
    }

    pub(super) fn offer_parcel(&mut self, parcel: Parcel) {
        let count = &mut self.parcels_sent[parcel as usize];
        *count = count.wrapping_add(1);
        self.own().sent[parcel as usize].raise();
    }

    /// What a rank updates of a unit's parameters: where it lies in their region, and its length.
    fn owned(&self, unit: usize) -> (usize, usize) {
        if self.arena.plan().config.shards_optimizer() {
            self.arena.shard(unit, self.at().zero)
        } else {
            self.arena.flat(unit)
        }
    }

    pub(super) fn take_parcel(&mut self, parcel: Parcel, unit: usize, to: usize, len: usize) -> Result<(), Lost> {
        let rank = self.along(Axis::Pipeline, self.sender(parcel));
        let slot = self.parcels_taken[parcel as usize] as usize % OUTGOING_SLOTS;
        let count = self.parcels_taken[parcel as usize].wrapping_add(1);
        self.parcels_taken[parcel as usize] = count;
        self.await_signal(rank, |sender| &sender.sent[parcel as usize], count)?;
        let plan = self.arena.plan();
        let memory = &plan.of_rank(rank).memory;
        let mut moved = Moved::default();
        let outgoing = |at: usize| Place { rank, kind: Kind::Outgoing, at };
        // SAFETY: the sender has sent it and clears the slot only when this rank has taken it; what is tied it writes
        // again only after an exchange that this rank enters later. The destinations are this rank's own, and the schedule
        // check proves that nothing else lies there.
        unsafe {
            match parcel {
                Parcel::Activations => {
                    moved.copied.activation_bytes +=
                        self.fetch(outgoing(slot * memory.outgoing_slot), (Kind::Activations, to), len);
                }
                Parcel::Gradients => {
                    let returning = OUTGOING_SLOTS * memory.outgoing_slot + slot * memory.returning_slot;
                    moved.copied.gradient_bytes +=
                        self.fetch(outgoing(returning), (Kind::ActivationGradients, to), len);
                }
                Parcel::TiedGradients => {
                    let tied = plan.units.len() - 1;
                    let (part, len) = self.arena.part(unit, self.at().replica);
                    let (kind, at, _) = self.arena.reduced(tied, self.at().zero);
                    let (to, start, _) = self.arena.reduced(unit, self.at().zero);
                    moved.in_place.tied_bytes += self.add(Place { rank, kind, at: at + part }, (to, start + part), len);
                }
                Parcel::TiedParameters => {
                    let (at, len) = self.owned(plan.units[unit].source);
                    let (to, _) = self.owned(unit);
                    let from = Place { rank, kind: Kind::Parameters, at };
                    moved.copied.tied_bytes += self.fetch(from, (Kind::Parameters, to), len);
                }
            }
        }
        self.moved += moved;
        self.own().taken[parcel as usize].raise();
        Ok(())
    }

    /// Adds the summed gradients of a tied unit on this pipeline stage to those of its owner.
    pub(super) fn fold_tied(&self, unit: usize) {
        let owner = self.arena.plan().units[unit].source;
        let (part, len) = self.arena.part(unit, self.at().replica);
        let (kind, at, _) = self.arena.reduced(unit, self.at().zero);
        let (to, start, _) = self.arena.reduced(owner, self.at().zero);
        let from = Place { rank: self.rank(), kind, at: at + part };
        // SAFETY: both are this rank's own parts of sums, of different units, which peers read only after a later signal.
        let from_peers = unsafe { self.add(from, (to, start + part), len) };
        debug_assert_eq!(from_peers, 0, "what is folded is this rank's own");
    }

    /// Adds gradients to gradients. Gives the bytes that came from a peer.
    ///
    /// # Safety
    /// As for [`Shared::fetch`].
    unsafe fn add(&self, from: Place, to: (Kind, usize), len: usize) -> usize {
        // SAFETY: by the caller's promise.
        unsafe { self.sum(&|_| from, 1, to, len, Write::Add) }
    }
}
