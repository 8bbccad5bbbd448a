//! Pieces: how states that are kept in a tier are cut, where those of a unit begin there, and the window on the device
//! in which pieces are worked on. Never knows the order in which they travel.
//!
//! A piece is a part of one unit, so its number in the unit says which elements it has, and no table is needed. Pieces
//! begin on blocks of their tier and of the window, because direct I/O moves whole blocks. Flat buffers are not laid out
//! in blocks: norms are summed in parts that follow from their alignment, so a coarser one would change bits.

use super::{Tables, min};
use crate::config::{Offload, TierKind};
use crate::layout::Home;
use crate::lines::{BLOCK_ELEMENTS, round_up};
use crate::unit::max;

impl TierKind {
    /// The home of a region that is kept in this tier; none if it stays on the device.
    pub const fn home(self) -> Option<Home> {
        match self {
            TierKind::Device => None,
            TierKind::Host => Some(Home::Host),
            TierKind::Disk => Some(Home::Disk),
        }
    }
}

impl Offload {
    /// The homes of what is kept in tiers.
    pub fn homes(&self) -> impl Iterator<Item = Home> {
        self.states().into_iter().filter_map(|(_, tier)| tier.home())
    }
}

impl Tables<'_> {
    /// Elements of a unit whose optimizer state one rank keeps, padding included.
    pub const fn owned(&self, unit: usize) -> usize {
        let ranks = if self.config.shards_optimizer() { self.config.mesh.zero } else { 1 };
        if self.units[unit].params > 0 { self.padded(unit) / ranks } else { 0 }
    }

    /// The number of pieces in which the optimizer state of a unit travels.
    pub const fn pieces(&self, unit: usize) -> usize {
        self.owned(unit).div_ceil(self.config.piece_elements())
    }

    /// Where the states of a unit begin in a tier, in elements: on a block, after those of all units before it. `start`
    /// is where they would begin if units followed one another without gaps.
    pub const fn kept_start(&self, unit: usize, start: usize) -> usize {
        round_up(start, BLOCK_ELEMENTS) + unit * BLOCK_ELEMENTS
    }

    /// Room for one state of all units of a pipeline stage in a tier, in elements, if a rank owns `owned` of them.
    pub(super) const fn kept(&self, owned: usize) -> usize {
        round_up(owned, BLOCK_ELEMENTS) + (self.units.len() + 1) * BLOCK_ELEMENTS
    }

    /// Slots of the window of a pipeline stage: for the pieces that are fetched ahead, the one that is updated, and the
    /// one that is stored. There are no more slots than pieces.
    pub const fn window_slots(&self, pipeline: usize) -> usize {
        let (mut pieces, mut unit) = (0, 0);
        while unit < self.units.len() {
            pieces += if self.pipeline_stage_of(unit) == pipeline { self.pieces(unit) } else { 0 };
            unit += 1;
        }
        if self.config.updates_in_pieces() { min(self.config.offload.slots(), pieces) } else { 0 }
    }

    /// Elements of one state in a slot of that window.
    pub(super) const fn window_slot(&self, pipeline: usize) -> usize {
        let (mut owned, mut unit) = (0, 0);
        while unit < self.units.len() {
            owned = if self.pipeline_stage_of(unit) == pipeline { max(owned, self.owned(unit)) } else { owned };
            unit += 1;
        }
        if self.config.updates_in_pieces() {
            min(self.config.piece_elements(), round_up(owned, BLOCK_ELEMENTS))
        } else {
            0
        }
    }
}
