//! Rules of parameters: nothing is used before its gather has been waited for, nor after its release.

use super::{BrokenRule, Checker, Held};
use crate::schedule::Piece;

impl Checker<'_, '_> {
    pub(super) const fn gather(&mut self, unit: usize, slot: usize) -> BrokenRule {
        rules! { self.at(unit).holds => "a gather of a unit without parameters of its own", }
        if self.subject.tables.config.shards_parameters() {
            return match self.occupy(unit, slot, Held::InFlight) {
                None => self.give_shard(unit, slot),
                broken => broken,
            };
        }
        rules! { matches!(self.units[unit].replica, Held::No) => "a gather of a replica that is whole", }
        self.units[unit].replica = Held::InFlight;
        None
    }

    pub(super) const fn wait(&mut self, unit: usize) -> BrokenRule {
        let shards = self.subject.tables.config.shards_parameters();
        let state = &mut self.units[unit];
        let held = if shards { &mut state.slotted } else { &mut state.replica };
        rules! { matches!(held, Held::InFlight) => "a wait without a gather in flight", }
        *held = Held::Yes;
        None
    }

    pub(super) const fn convert(&mut self, unit: usize, slot: usize) -> BrokenRule {
        let config = self.subject.tables.config;
        rules! {
            self.at(unit).holds => "a copy of a unit without parameters of its own",
            config.uses_slots() && !config.shards_parameters() => "a copy of parameters that are used where they lie",
            matches!(self.units[unit].replica, Held::Yes) => "a copy of a replica that is not whole",
        }
        self.occupy(unit, slot, Held::Yes)
    }

    const fn occupy(&mut self, unit: usize, slot: usize, held: Held) -> BrokenRule {
        rules! {
            matches!(self.units[unit].slotted, Held::No) => "a gather of parameters that are held already",
            !self.agreed => "a gather after the agreement, when owners write",
            self.is_fresh(unit) => "a gather before the update of its parameters",
            slot < self.gathered_slots => "a gather into a slot that does not exist",
            !self.units[slot].is_slot_taken => "a gather into a slot in use",
        }
        self.units[slot].is_slot_taken = true;
        self.units[unit].slot = slot;
        self.units[unit].slotted = held;
        None
    }

    pub(super) const fn release(&mut self, unit: usize) -> BrokenRule {
        rules! {
            !matches!(self.units[unit].slotted, Held::No) => "a release of parameters that are not held",
            matches!(self.units[unit].slotted, Held::Yes) => "a release before its wait",
        }
        self.units[self.units[unit].slot].is_slot_taken = false;
        self.units[unit].slotted = Held::No;
        None
    }

    /// Whether the parameters that a unit computes with are there.
    pub(super) const fn has_parameters(&self, unit: usize) -> bool {
        let config = self.subject.tables.config;
        let holder = if self.at(unit).holds { unit } else { self.subject.tables.units[unit].source };
        self.at(unit).padded == 0
            || if config.shards_parameters() || config.uses_slots() {
                matches!(self.units[holder].slotted, Held::Yes)
            } else {
                matches!(self.units[holder].replica, Held::Yes)
            }
    }

    pub(super) const fn update(&mut self, unit: usize, piece: Option<Piece>) -> BrokenRule {
        let at_use = self.subject.tables.config.updates_at_use();
        rules! {
            at_use || self.agreed => "an update before the agreement",
            !at_use || !self.agreed => "an update after the agreement that belongs to the next step",
            self.subject.tables.units[unit].params > 0 => "an update of a unit without parameters of its own",
            self.has_directions(unit) => "an update before the directions of its matrices are there",
        }
        if let Some(rule) = self.take_up(unit, piece) {
            return Some(rule);
        }
        if !self.has_updated_pieces(unit) {
            return None;
        }
        if let Some(rule) = self.renew(unit) {
            return Some(rule);
        }
        self.free_directions(unit);
        None
    }

    /// Whether the parameters of a unit are those that this pass computes with: if they are updated at their use, new ones. Its sums
    /// of the step before are then no longer needed when those of this step are made, which comes after its backward.
    pub(super) const fn is_fresh(&self, unit: usize) -> bool {
        !self.subject.tables.config.updates_in(self.subject.pass) || self.units[unit].updated
    }

    /// Notes that a unit's parameters have new values.
    pub(super) const fn renew(&mut self, unit: usize) -> BrokenRule {
        rules! { !self.units[unit].updated => "a second update of a unit", }
        self.units[unit].updated = true;
        if self.subject.tables.config.shards_optimizer() {
            // Only this rank's own shard of a replica is new: the rest must be gathered before it is used.
            self.units[unit].replica = Held::No;
        }
        None
    }
}
