//! Walk: the computations of one pipeline stage in order, turn by turn and unit by unit.

use crate::layout::Tables;
use crate::pipeline::{Chunk, Pass, Turn, Turns};

/// The order of computation on one pipeline stage.
pub(super) struct PipelineStageWalk<'a> {
    pub pass: Pass,
    pub tables: &'a Tables<'a>,
    pub pipeline: usize,
    pub turns: Turns<'a>,
}

/// A place in the walk. Its computation is kept with it, because reads are more frequent than moves.
#[derive(Clone, Copy)]
pub(super) struct WalkCursor {
    /// Number of the turn.
    index: usize,
    /// The computation at this place; none after the last.
    pub step: Option<WalkStep>,
    /// Units of the turn that come after this one.
    left: usize,
}

/// One computation.
#[derive(Clone, Copy)]
pub(super) struct WalkStep {
    pub unit: usize,
    pub turn: Turn,
}

/// Consecutive steps that work on one flat buffer.
#[derive(Clone, Copy)]
pub(super) struct Use {
    /// The unit under which the pipeline stage holds the buffer.
    pub unit: usize,
    /// Where it begins.
    start: WalkCursor,
}

impl<'a> PipelineStageWalk<'a> {
    pub const fn new(pass: Pass, tables: &'a Tables<'a>, pipeline: usize) -> Self {
        Self { pass, tables, pipeline, turns: Turns { config: tables.config, pass, pipeline } }
    }

    pub const fn start(&self) -> WalkCursor {
        self.turn(0)
    }

    /// The first place of a turn.
    const fn turn(&self, index: usize) -> WalkCursor {
        if index == self.turns.count() {
            return WalkCursor { index, step: None, left: 0 };
        }
        let turn = self.turns.at(index);
        let Chunk { first, end } = self.tables.chunks[turn.chunk];
        WalkCursor {
            index,
            step: Some(WalkStep { unit: if turn.backward { end - 1 } else { first }, turn }),
            left: end - first - 1,
        }
    }

    /// The place after this one.
    pub const fn next(&self, mut cursor: WalkCursor) -> WalkCursor {
        if cursor.left == 0 {
            return if cursor.step.is_none() { cursor } else { self.turn(cursor.index + 1) };
        }
        if let Some(step) = &mut cursor.step {
            if step.turn.backward {
                step.unit -= 1;
            } else {
                step.unit += 1;
            }
        }
        cursor.left -= 1;
        cursor
    }

    /// Whether a unit lies on this pipeline stage.
    pub const fn has(&self, unit: usize) -> bool {
        self.tables.placements[unit].pipeline_stage == self.pipeline
    }

    /// Whether a unit is the first of its chunk.
    pub const fn is_first(&self, unit: usize) -> bool {
        self.tables.chunks[self.tables.placements[unit].chunk].first == unit
    }

    /// Whether a step is the first of its turn.
    pub const fn begins(&self, step: WalkStep) -> bool {
        let Chunk { first, end } = self.tables.chunks[step.turn.chunk];
        step.unit == if step.turn.backward { end - 1 } else { first }
    }

    /// Whether a unit's output leaves for another pipeline stage: it is the last of its chunk, but not of the model.
    pub const fn leaves(&self, unit: usize) -> bool {
        self.tables.chunks[self.tables.placements[unit].chunk].end == unit + 1 && unit + 1 < self.tables.units.len()
    }

    /// The tied unit on another pipeline stage that mirrors the parameters of `owner`.
    pub const fn mirror_of(&self, owner: usize) -> Option<usize> {
        match self.tables.tied_to(owner) {
            Some(tied) if self.tables.placements[tied].holds => Some(tied),
            _ => None,
        }
    }

    /// The unit under which this pipeline stage holds the parameters of `unit`, if it has any.
    pub const fn holder(&self, unit: usize) -> Option<usize> {
        let placement = &self.tables.placements[unit];
        if placement.padded == 0 {
            None
        } else if placement.holds {
            Some(unit)
        } else {
            Some(self.tables.units[unit].source)
        }
    }

    /// The first use.
    pub const fn first_use(&self) -> Option<Use> {
        self.use_of_another(self.start(), None)
    }

    /// The use after `current`. Consecutive steps on one flat buffer are one use of it, so the last unit of a forward
    /// turn is gathered only once if the backward turn follows immediately.
    pub const fn next_use(&self, current: Use) -> Option<Use> {
        self.use_of_another(self.next(current.start), Some(current.unit))
    }

    /// The unit whose flat buffer is used next after a place.
    pub const fn used_after(&self, place: WalkCursor) -> Option<usize> {
        match self.use_of_another(self.next(place), None) {
            Some(found) => Some(found.unit),
            None => None,
        }
    }

    /// The first use, at `start` or after it, of a flat buffer other than that of `unit`.
    const fn use_of_another(&self, mut start: WalkCursor, unit: Option<usize>) -> Option<Use> {
        while let Some(step) = start.step {
            if let Some(holder) = self.holder(step.unit)
                && !matches!(unit, Some(unit) if unit == holder)
            {
                return Some(Use { unit: holder, start });
            }
            start = self.next(start);
        }
        None
    }
}
