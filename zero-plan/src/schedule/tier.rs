//! Tier: the order in which pieces of the optimizer state come to the window, are updated, and go back. The slots of
//! the window rotate: a slot gets its next piece once its last one is stored.
//!
//! The first fetches are the first ops of a step. The states do not change before the agreement, so these pieces are
//! there when the norm of the gradients is known. From then on, each update is followed by the store of its piece and
//! the fetch of the piece that gets its slot next.
//!
//! If the host updates parameters, the same window is in its memory, and pieces go the other way: the device stores the sums
//! of a piece there, and fetches its new parameters after the update. The first stores come once all sums are made.
//!
//! If parameters are updated at their use, the updates of a step lie in the next one: those of a unit before it is first
//! fetched or gathered there, so that pieces travel while the units before it compute. Only the pieces of that unit are fetched
//! before its shard, which its gather waits for; those of later units come after.

use super::walk::PipelineStageWalk;
use super::{Op, Ops, Piece};
use crate::layout::Tables;

impl Tables<'_> {
    /// The unit whose parameters are all new on the device after this op, and may be read by other ranks.
    pub const fn renews(&self, op: Op) -> Option<usize> {
        let (unit, piece) = match op {
            Op::Update { unit, piece } if !self.config.takes_back_pieces() || piece.is_none() => (unit, piece),
            Op::Fetch { unit, piece } if self.config.takes_back_pieces() => (unit, Some(piece)),
            _ => return None,
        };
        if self.completes(unit, piece) { Some(unit) } else { None }
    }

    /// Whether the parameters of a unit are all new after an update of this piece of them, or of all.
    pub const fn completes(&self, unit: usize, piece: Option<Piece>) -> bool {
        match piece {
            None => true,
            Some(Piece { index, .. }) => index + 1 == self.pieces(unit),
        }
    }
}

/// The pieces of a step, in the order of updates.
pub(super) struct Window {
    slots: usize,
    /// The piece that is fetched next: its unit, and its number in that unit.
    unit: usize,
    index: usize,
    /// Pieces fetched and updated so far.
    fetched: usize,
    updated: usize,
    /// If parameters are updated at their use: the first unit whose update is not placed yet.
    ahead: usize,
}

impl Window {
    /// Before the first piece.
    pub const fn new(walk: &PipelineStageWalk) -> Self {
        let slots = walk.tables.window_slots(walk.pipeline);
        Self { slots, unit: 0, index: 0, fetched: 0, updated: 0, ahead: 0 }
    }

    /// Brings a piece into each slot that has none, as far as there are pieces.
    pub const fn fill(&mut self, walk: &PipelineStageWalk, ops: &mut Ops) {
        self.fill_up_to(walk, walk.tables.units.len() - 1, ops);
    }

    /// The same with pieces of units up to this one.
    const fn fill_up_to(&mut self, walk: &PipelineStageWalk, last: usize, ops: &mut Ops) {
        while self.fetched < self.updated + self.slots && self.next_unit(walk) <= last {
            self.fetch(walk, ops);
        }
    }

    /// The unit of the piece that is fetched next; the number of units if there is none.
    const fn next_unit(&mut self, walk: &PipelineStageWalk) -> usize {
        while self.unit < walk.tables.units.len()
            && (!walk.has(self.unit) || self.index == walk.tables.pieces(self.unit))
        {
            (self.unit, self.index) = (self.unit + 1, 0);
        }
        self.unit
    }

    /// Brings the next piece, if there is one, from where it is kept.
    const fn fetch(&mut self, walk: &PipelineStageWalk, ops: &mut Ops) {
        if self.next_unit(walk) < walk.tables.units.len() {
            let piece = Piece { index: self.index, slot: self.fetched % self.slots };
            let config = walk.tables.config;
            if !config.updates_on_host() {
                ops.push(Op::Fetch { unit: self.unit, piece });
            } else if config.hands_over_pieces() {
                ops.push(Op::Store { unit: self.unit, piece });
            }
            self.index += 1;
            self.fetched += 1;
        }
    }

    /// Before the first use of a unit in a step that updates parameters at their use: updates it, and any unit before it.
    pub const fn before_use(&mut self, walk: &PipelineStageWalk, unit: usize, ops: &mut Ops) {
        if !walk.tables.config.updates_in(walk.pass) {
            return;
        }
        while self.ahead <= unit {
            if walk.has(self.ahead) && walk.tables.units[self.ahead].params > 0 {
                self.update(walk, self.ahead, ops);
            }
            self.ahead += 1;
        }
    }

    /// Updates the pieces of a unit.
    pub const fn update(&mut self, walk: &PipelineStageWalk, unit: usize, ops: &mut Ops) {
        let (mut index, at_use) = (0, walk.tables.config.updates_in(walk.pass));
        while index < walk.tables.pieces(unit) {
            if at_use {
                self.fill_up_to(walk, unit, ops);
            }
            let piece = Piece { index, slot: self.updated % self.slots };
            ops.push(Op::Update { unit, piece: Some(piece) });
            let config = walk.tables.config;
            if !config.updates_on_host() {
                ops.push(Op::Store { unit, piece });
            } else if config.takes_back_pieces() {
                ops.push(Op::Fetch { unit, piece });
            }
            self.updated += 1;
            if !at_use {
                self.fetch(walk, ops);
            }
            index += 1;
        }
    }
}
