//! Publish: the accesses of an offer, and those that read the copies of a rank.

use super::{Access, Content, OfOp};
use crate::mesh::Coordinates;
use crate::place::{Place, State};
use crate::plan::Plan;

impl OfOp<'_, '_> {
    /// Reads what this rank offers of a unit after its update, and writes the copy.
    pub(super) fn offer(&mut self, unit: usize) {
        let (own, is_updated) = (self.own, true);
        let Some(offered) = own.offered(unit) else { return };
        let content = match own.published_state() {
            State::Parameters => Content::Parameters { unit, is_updated },
            state => Content::State { state, unit, is_updated },
        };
        let from = own.offered_from(unit, self.position.shard_slot());
        self.note(own.at, from, content, self.bytes(from.region, offered.start), false);
        self.note_published(unit, own.offered_to(unit, self.position.copy), true);
    }

    /// Takes what this rank offers of a unit from the window to the copy.
    pub(super) fn store_offered(&mut self, unit: usize) {
        let copy = self.position.copy;
        self.note_published(unit, self.own.offered_to(unit, copy), false);
        self.note_published(unit, self.own.published(unit, copy), true);
    }

    fn note_published(&mut self, unit: usize, place: Place, writes: bool) {
        let Some(offered) = self.own.offered(unit) else { return };
        let from_byte = self.bytes(place.region, offered.start);
        self.note(self.own.at, place, Content::Published { unit }, from_byte, writes);
    }
}

/// Accesses that read a copy of a rank as readers do, all of it.
pub(crate) fn published(plan: &Plan, at: Coordinates, copy: usize) -> Vec<Access> {
    let places = plan.places(at);
    let of_unit = |unit: usize| {
        let offered = places.offered(unit)?;
        let place = places.published(unit, copy);
        let from_byte = place.region.bytes(&plan.config, offered.start);
        Some(Access { at, place, content: Content::Published { unit }, from_byte, writes: false })
    };
    (0..plan.units.len()).filter_map(of_unit).collect()
}
