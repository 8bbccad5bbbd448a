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
        let (stored, place) = if self.tables.config.fetches_published() {
            (self.shared_out(unit), self.fetched_shard(unit, shard_slot))
        } else {
            match self.state(self.published_state(), unit) {
                Some(state) => state,
                None => panic!("an offer of parameters that this rank does not have"),
            }
        };
        let element = place.len_bytes / stored.len;
        place.cut((offered.start - stored.start) * element, offered.len * element)
    }

    /// The place of a unit in a copy. Units lie in the copy one after another, and copies do so in their region.
    pub const fn published(&self, unit: usize, copy: usize) -> Place {
        let config = self.tables.config;
        let parts = config.mesh.data_ranks();
        let Place { offset_bytes, .. } = self.copy(copy);
        let place = self.place(Kind::Published, self.placement(unit).start / parts, self.summed(unit).len);
        Place { offset_bytes: offset_bytes + place.offset_bytes, ..place }
    }

    /// A whole copy: what readers get of this rank.
    pub const fn copy(&self, copy: usize) -> Place {
        let len_bytes = self.memory.region(Kind::Published).bytes / self.tables.config.publish.copies;
        Place { region: Kind::Published, offset_bytes: copy * len_bytes, len_bytes }
    }
}
