//! Walk: the computations of one pipeline stage in order, turn by turn and unit by unit.

use super::Pass;
use crate::layout::Tables;
use crate::pipeline::{Chunk, Turn, Turns};

/// The order of computation on one pipeline stage.
pub(super) struct Walk<'a> {
    pub pass: Pass,
    pub tables: &'a Tables<'a>,
    pub stage: usize,
    pub turns: Turns<'a>,
}

/// A place in the walk.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// Number of the turn.
    index: usize,
    /// The turn, kept since most steps stay within it; none behind the last.
    turn: Option<Turn>,
    /// Which unit of it.
    unit: usize,
    /// Computations before it.
    pub position: usize,
}

/// One computation.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub unit: usize,
    pub turn: Turn,
}

/// A stretch of steps that works on one flat buffer.
#[derive(Clone, Copy)]
pub(super) struct Use {
    /// The unit under which the stage holds it.
    pub unit: usize,
    /// Position of its first step.
    pub first: usize,
    /// Position of its last step.
    pub last: usize,
    /// Where to look for the next use.
    pub end: Cursor,
}

impl<'a> Walk<'a> {
    pub const fn new(pass: Pass, tables: &'a Tables<'a>, stage: usize) -> Self {
        Self { pass, tables, stage, turns: Turns { config: tables.config, pass, stage } }
    }

    /// Number of computations.
    pub const fn steps(&self) -> usize {
        let (mut units, mut chunk) = (0, self.stage);
        while chunk < self.tables.chunks.len() {
            units += self.tables.chunks[chunk].end - self.tables.chunks[chunk].first;
            chunk += self.tables.config.mesh.pipeline;
        }
        units * self.turns.count() / self.tables.config.chunks_per_rank()
    }

    pub const fn start(&self) -> Cursor {
        Cursor { index: 0, turn: self.turn(0), unit: 0, position: 0 }
    }

    const fn turn(&self, index: usize) -> Option<Turn> {
        if index < self.turns.count() { Some(self.turns.at(index)) } else { None }
    }

    /// The computation there, or none at the end.
    pub const fn step(&self, cursor: &Cursor) -> Option<Step> {
        let Some(turn) = cursor.turn else { return None };
        let Chunk { first, end } = self.tables.chunks[turn.chunk];
        Some(Step { unit: if turn.backward { end - 1 - cursor.unit } else { first + cursor.unit }, turn })
    }

    /// The place behind.
    pub const fn next(&self, mut cursor: Cursor) -> Cursor {
        let Some(turn) = cursor.turn else { return cursor };
        let Chunk { first, end } = self.tables.chunks[turn.chunk];
        cursor.unit += 1;
        cursor.position += 1;
        if first + cursor.unit == end {
            cursor.unit = 0;
            cursor.index += 1;
            cursor.turn = self.turn(cursor.index);
        }
        cursor
    }

    /// Whether a unit lies on this stage.
    pub const fn has(&self, unit: usize) -> bool {
        self.tables.placements[unit].stage == self.stage
    }

    /// Whether a unit is the first of its chunk.
    pub const fn is_first(&self, unit: usize) -> bool {
        self.tables.chunks[self.tables.placements[unit].chunk].first == unit
    }

    /// The tied unit on another stage that mirrors the parameters of `owner`.
    pub const fn mirror_of(&self, owner: usize) -> Option<usize> {
        match self.tables.tied_to(owner) {
            Some(tied) if self.tables.placements[tied].holds => Some(tied),
            _ => None,
        }
    }

    /// The unit under which this stage holds the parameters that `unit` takes, if it takes any.
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

    /// The next use at or after a place: consecutive steps on one flat buffer are one use of it. So the last unit of a
    /// forward turn whose backward turn follows at once is gathered once for both.
    pub const fn next_use(&self, mut cursor: Cursor) -> Option<Use> {
        let mut found: Option<Use> = None;
        while let Some(step) = self.step(&cursor) {
            if let Some(unit) = self.holder(step.unit) {
                match &mut found {
                    Some(current) if current.unit == unit => current.last = cursor.position,
                    Some(_) => break,
                    None => found = Some(Use { unit, first: cursor.position, last: cursor.position, end: cursor }),
                }
            }
            cursor = self.next(cursor);
        }
        if let Some(current) = &mut found {
            current.end = cursor;
        }
        found
    }
}
