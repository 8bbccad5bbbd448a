//! Activations: where those of a unit lie in a slot for activations, and which of them are kept in a tier. Never says when
//! they travel.
//!
//! Units of a chunk lie one after another in a slot. If activations are kept in a tier, all but the last unit take turns
//! with a few places instead: a place is free for the forward of a later unit once its activations are stored, and for
//! those of an earlier unit once the backward has read them. When the last unit has run forward, its backward follows, so
//! its own activations and those that are in these places never leave. Such a plan has one chunk and one slot.

use super::{Tables, entering_bytes};
use crate::lines::{BLOCK_BYTES, round_up};
use crate::unit::max;

impl Tables<'_> {
    /// Bytes that a unit keeps in its slot from its forward to its backward: the values that it saves, and its output.
    pub(super) const fn kept_activations(&self, unit: usize) -> (usize, usize) {
        let (saved, output) = (self.units[unit].saved_bytes, self.units[unit].output_bytes);
        let saved = if self.config.recomputes(self.units, unit) { 0 } else { self.config.whole_lines(saved) };
        (saved, if self.leaves(unit) { 0 } else { self.config.whole_lines(output) })
    }

    /// Whether a unit takes turns with places for its activations.
    pub const fn takes_turns(&self, unit: usize) -> bool {
        self.config.offloads_activations() && unit + 1 < self.units.len()
    }

    /// The places that units take turns with; none if activations stay on the device.
    pub const fn activation_turns(&self) -> usize {
        if self.config.offloads_activations() { self.config.offload.slots() } else { 0 }
    }

    /// Whether the activations of a unit are kept in a tier: a later unit has the place of this one when the backward
    /// begins.
    pub const fn stores_activations(&self, unit: usize) -> bool {
        self.takes_turns(unit) && unit + self.activation_turns() + 1 < self.units.len()
    }

    /// The unit that has the place of this one before it in the forward, if there is one.
    pub const fn takes_turns_after(&self, unit: usize) -> Option<usize> {
        if self.takes_turns(unit) { unit.checked_sub(self.activation_turns()) } else { None }
    }

    /// The last unit whose backward reads the activations of a unit that takes turns: its own, or the one after it if the
    /// unit keeps only its output.
    pub const fn last_reader(&self, unit: usize) -> usize {
        if self.config.recomputes(self.units, unit) { unit + 1 } else { unit }
    }

    /// Whether decoding, too, writes what a unit saves to the region of recomputed values. Otherwise a model whose activations
    /// are kept in a tier would need that room a second time.
    pub const fn saves_apart(&self, unit: usize) -> bool {
        self.config.offloads_activations() && self.config.recomputes(self.units, unit)
    }

    /// Whole blocks for the activations of a unit.
    pub(super) const fn activation_blocks(&self, unit: usize) -> usize {
        let (saved, output) = self.kept_activations(unit);
        round_up(saved + output, BLOCK_BYTES)
    }

    /// Bytes that activations take in their tier.
    pub(super) const fn stored_activations(&self) -> usize {
        let (mut bytes, mut unit) = (0, 0);
        while self.stores_activations(unit) {
            bytes += self.activation_blocks(unit);
            unit += 1;
        }
        bytes
    }
}

/// The places that units take turns with, one after another in the slot.
#[derive(Clone, Copy)]
pub(super) struct PlacesInTurn {
    count: usize,
    /// Where the first begins, after what does not travel.
    start_bytes: usize,
    each_bytes: usize,
}

impl PlacesInTurn {
    /// Each has room for the unit that needs most.
    pub const fn of(tables: &Tables) -> Self {
        let count = tables.activation_turns();
        if count == 0 {
            return Self { count, start_bytes: 0, each_bytes: 0 };
        }
        let (mut each_bytes, mut unit) = (0, 0);
        while unit + 1 < tables.units.len() {
            each_bytes = max(each_bytes, tables.activation_blocks(unit));
            unit += 1;
        }
        let (saved, output) = tables.kept_activations(tables.units.len() - 1);
        let start_bytes = round_up(entering_bytes(tables, 0) + saved + output, BLOCK_BYTES);
        Self { count, start_bytes, each_bytes }
    }

    /// Where that of a unit begins.
    pub const fn start(&self, unit: usize) -> usize {
        self.start_bytes + unit % self.count * self.each_bytes
    }

    /// Where all end.
    pub const fn end(&self) -> usize {
        self.start_bytes + self.count * self.each_bytes
    }
}
