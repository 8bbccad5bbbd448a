//! Position: the part of the state of a walk over a table of ops that decides the places of the next op: the slot into
//! which each unit was gathered, and the slot from which the next parcel of each kind leaves. It starts anew with each
//! walk, so every walk has the same places.

use super::Places;
use crate::config::Offload;
use crate::layout::OUTGOING_SLOTS;
use crate::schedule::{Op, Parcel};

/// The position of a rank in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// For each unit, the slot into which it was last gathered or converted.
    slots: Vec<usize>,
    /// Units gathered or offered so far.
    gathered: usize,
    /// Parcels of each kind sent and received so far.
    sent: [usize; Parcel::ALL.len()],
    taken: [usize; Parcel::ALL.len()],
    /// Whether the walk decodes.
    pub is_decoding: bool,
    /// The copy that a publication writes.
    pub copy: usize,
}

impl Position {
    /// The position before the first op of a table, for a model with this many units.
    pub fn new(units: usize) -> Self {
        let (gathered, sent, taken, is_decoding, copy) = Default::default();
        Self { slots: vec![0; units], gathered, sent, taken, is_decoding, copy }
    }

    /// Goes back to the start of a table. Allocates nothing.
    pub fn restart(&mut self) {
        self.slots.fill(0);
        (self.gathered, self.sent, self.taken) = Default::default();
    }

    /// The places of a rank in this walk.
    pub fn places<'a>(&self, places: Places<'a>) -> Places<'a> {
        if self.is_decoding { places.decoding() } else { places }
    }

    /// Goes past `op`.
    pub fn pass(&mut self, op: Op) {
        match op {
            Op::Gather { unit, slot } => {
                self.slots[unit] = slot;
                self.gathered += 1;
            }
            Op::Offer { .. } => self.gathered += 1,
            Op::Convert { unit, slot } => self.slots[unit] = slot,
            Op::Send { parcel, .. } => self.sent[parcel as usize] += 1,
            Op::Receive { parcel, .. } => self.taken[parcel as usize] += 1,
            _ => {}
        }
    }

    /// The slot that the parameters held under `unit` are in, if they are in one.
    pub fn slot(&self, unit: usize) -> usize {
        self.slots[unit]
    }

    /// The slot with the fetched shard that the next gather or offer gives, if shards are kept in a tier.
    pub fn shard_slot(&self) -> usize {
        self.gathered % Offload::SHARD_SLOTS
    }

    /// The slot that the next parcel of a kind leaves from.
    pub fn outgoing(&self, parcel: Parcel) -> usize {
        self.sent[parcel as usize] % OUTGOING_SLOTS
    }

    /// The slot of its sender that the next parcel of a kind arrives from.
    pub fn arriving(&self, parcel: Parcel) -> usize {
        self.taken[parcel as usize] % OUTGOING_SLOTS
    }
}
