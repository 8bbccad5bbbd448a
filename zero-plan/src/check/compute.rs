//! Rules of computation: every unit works on every micro-batch once in each direction, in order, on activations that are
//! there and in a slot that nothing else uses.

use super::{At, BrokenRule, Checker, Outgoing, SlotState, StagingState};

impl Checker<'_, '_> {
    pub(super) const fn is_chunk_first(&self, unit: usize) -> bool {
        self.subject.tables.chunks[self.at(unit).chunk].first == unit
    }

    pub(super) const fn is_chunk_last(&self, unit: usize) -> bool {
        self.subject.tables.chunks[self.at(unit).chunk].end == unit + 1
    }

    /// The number that stands for a chunk of a micro-batch in a slot.
    const fn holder(&self, unit: usize, micro_batch: usize) -> usize {
        1 + micro_batch * self.subject.tables.chunks.len() + self.at(unit).chunk
    }

    /// Whether a slot holds the activations of a unit's chunk in a micro-batch.
    pub(super) const fn is_in_slot(&self, unit: usize, micro_batch: usize, slot: usize) -> bool {
        slot < self.slots.len() && self.slots[slot].0 == self.holder(unit, micro_batch)
    }

    /// Takes a slot for the chunk that begins with `unit`.
    pub(super) const fn take_slot(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        rules! {
            slot < self.subject.tables.activation_slots(self.subject.pipeline) => "activations in a slot that does not exist",
            // Otherwise it overwrites activations that a backward has still to read.
            self.slots[slot].0 == 0 => "activations in a slot in use",
        }
        self.slots[slot] = SlotState(self.holder(unit, micro_batch));
        None
    }

    pub(super) const fn forward(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        rules! {
            self.has_parameters(unit) => "a forward before its gather or after its release",
            self.units[unit].forwards == micro_batch => "a forward that is not the next of its unit",
            !self.agreed => "a forward after the end of the backward passes",
        }
        if unit == 0 {
            if let Some(rule) = self.take_slot(unit, micro_batch, slot) {
                return Some(rule);
            }
        } else if self.is_chunk_first(unit) {
            rules! { At::is(self.arrived, unit, micro_batch) => "a forward before its input is received", }
            self.arrived = None;
        } else {
            rules! {
                self.units[unit - 1].forwards == micro_batch + 1 => "a forward before the one that makes its input",
            }
        }
        rules! { self.is_in_slot(unit, micro_batch, slot) => "a forward in a slot of other activations", }
        if self.is_chunk_last(unit) && unit + 1 < self.units.len() {
            rules! {
                matches!(self.activations_out, Outgoing::Clear) => "a result written to a slot that is not clear",
            }
            self.activations_out = Outgoing::Written { unit, micro_batch };
        }
        rules! { self.is_turn_free(unit, micro_batch) => "a forward over activations that are not stored", }
        if self.subject.tables.config.recomputes(self.subject.tables.units, unit) {
            rules! { self.recomputed.is_none() => "a forward over recomputed values that are not used yet", }
        }
        self.units[unit].forwards += 1;
        None
    }

    pub(super) const fn recompute(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        rules! {
            self.subject.tables.config.recomputes(self.subject.tables.units, unit) =>
                "a second forward of a unit that keeps its saved values",
            self.has_parameters(unit) => "a second forward before its gather or after its release",
            self.units[unit].forwards > micro_batch && self.units[unit].backwards == micro_batch =>
                "a second forward that no backward waits for",
            self.is_in_slot(unit, micro_batch, slot) => "a second forward in a slot of other activations",
            self.has_input_back(unit, micro_batch) => "a second forward before its input is fetched",
            self.recomputed.is_none() => "a second forward over recomputed values that are not used yet",
        }
        self.recomputed = Some(At { unit, micro_batch });
        None
    }

    pub(super) const fn backward(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        let recomputes = self.subject.tables.config.recomputes(self.subject.tables.units, unit);
        let is_last = unit + 1 == self.units.len();
        rules! {
            self.has_parameters(unit) => "a backward before its gather or after its release",
            self.units[unit].forwards > micro_batch => "a backward without its forward",
            self.units[unit].backwards == micro_batch => "a backward that is not the next of its unit",
            self.is_in_slot(unit, micro_batch, slot) => "a backward in a slot of other activations",
            is_last || At::is(self.gradient_of, unit, micro_batch) =>
                "a backward before the gradient of its output is there",
            self.has_input_back(unit, micro_batch) => "a backward before its input is fetched",
            !recomputes || At::is(self.recomputed, unit, micro_batch) =>
                "a backward before its saved values are recomputed",
        }
        self.gradient_of = None;
        if recomputes {
            self.recomputed = None;
        }
        if !self.is_chunk_first(unit) {
            self.gradient_of = Some(At { unit: unit - 1, micro_batch });
        } else {
            self.slots[slot] = SlotState::NEW;
            if unit > 0 {
                rules! {
                    matches!(self.gradients_out, Outgoing::Clear) => "a gradient written to a slot that is not clear",
                }
                self.gradients_out = Outgoing::Written { unit, micro_batch };
            }
        }
        self.units[unit].backwards += 1;
        if self.at(unit).padded > 0 {
            let bucket = &mut self.buckets[self.subject.tables.placements[unit].bucket];
            rules! {
                matches!(bucket.staging, StagingState::Claimed) => "a gradient written to staging that is not claimed",
            }
            bucket.writes += 1;
        }
        None
    }
}
