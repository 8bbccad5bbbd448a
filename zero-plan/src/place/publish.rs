//! Publish: the parameters that a rank offers to readers, and the places of their copies. Never says which version a copy has.

use super::{Place, Places, State, Stretch};
use crate::layout::Kind;

impl Places<'_> {
    /// The elements of a unit's parameters that this rank offers to readers: those whose gradients it sums, so that all ranks
    /// together offer every element once. None if the unit lies elsewhere, or has no parameters of its own.
    pub const fn offered(&self, unit: usize) -> Option<Stretch> {
        let is_here = self.placement(unit).pipeline_stage == self.at.pipeline;
        if is_here && self.unit(unit).params > 0 { Some(self.summed(unit)) } else { None }
    }

    /// The state that it copies of them: what the optimizer updates, if that has more bits than layers read and those are published.
    pub const fn published_state(&self) -> State {
        if self.tables.config.publishes_master() { State::Master } else { State::Parameters }
    }

    /// The place that it copies them from: where they are kept, or the slot to which their shard was fetched.
    pub const fn offered_from(&self, unit: usize, shard_slot: usize) -> Place {
        let offered = self.summed(unit);
        let config = self.tables.config;
        let (stored, place) = if config.fetches_published() {
            // A device that gathers what it has fetched has a slot for each gather, of which publications use the first.
            let slot = if config.gathers_fetched() { 0 } else { shard_slot };
            (self.shared_out(unit), self.fetched_shard(unit, slot))
        } else {
            match self.state(self.published_state(), unit) {
                Some(state) => state,
                None => panic!("an offer of parameters that this rank does not have"),
            }
        };
        let element = place.len_bytes / stored.len;
        place.cut((offered.start - stored.start) * element, offered.len * element)
    }

    /// The place that it copies them to: in a copy, or in the window from which they get there.
    pub const fn offered_to(&self, unit: usize, copy: usize) -> Place {
        if self.tables.config.stores_published() {
            self.in_copy(unit, Kind::PublishedWindow)
        } else {
            self.published(unit, copy)
        }
    }

    /// The place of a unit in a copy. Units lie in the copy one after another, and copies do so in their region.
    pub const fn published(&self, unit: usize, copy: usize) -> Place {
        let place = self.in_copy(unit, Kind::Published);
        Place { offset_bytes: self.copy(copy).offset_bytes + place.offset_bytes, ..place }
    }

    /// The place of a unit in the first copy of a region.
    const fn in_copy(&self, unit: usize, region: Kind) -> Place {
        self.place(region, self.placement(unit).start / self.tables.config.mesh.data_ranks(), self.summed(unit).len)
    }

    /// A whole copy: what readers get of this rank.
    pub const fn copy(&self, copy: usize) -> Place {
        let config = self.tables.config;
        let all = self.memory.region(Kind::Published).bytes - self.stored_copies().len_bytes;
        let len_bytes = all / config.publish.copies;
        Place { region: Kind::Published, offset_bytes: copy * len_bytes, len_bytes }
    }

    /// The line in which a device says how many copies have arrived; empty if it takes none to the host.
    pub const fn stored_copies(&self) -> Place {
        let config = self.tables.config;
        let len_bytes = if config.stores_published() { config.whole_lines(1) } else { 0 };
        let offset_bytes = self.memory.region(Kind::Published).bytes - len_bytes;
        Place { region: Kind::Published, offset_bytes, len_bytes }
    }
}
