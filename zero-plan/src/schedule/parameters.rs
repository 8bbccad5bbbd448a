//! Parameters: gathers, waits and releases around a walk. Three ways, by what the configuration keeps: a unit is gathered
//! for each use (stage 3), or once a step and held (stage 3, `gather: PerStep`), or widened for each use (narrow replicas).

use super::walk::{Cursor, Use, Walk};
use super::{Op, Ops, Pass};

pub(super) enum Parameters {
    /// Layers compute on replicas where they lie.
    Replicated,
    /// Each use has a gather, or a copy, of its own.
    PerUse(Ring),
    /// A unit is gathered before its first use and released after its last.
    PerStep {
        /// Where the first use lies whose gather has not started; none when all have.
        ahead: Option<Cursor>,
        /// Gathers started and not yet waited for.
        in_flight: usize,
        /// Gathers started so far.
        started: usize,
    },
}

pub(super) struct Ring {
    /// The use that computes now, or else the next one.
    current: Option<Use>,
    /// The first use whose gather has not started.
    ahead: Option<Use>,
    /// Uses from `current` up to `ahead`.
    in_flight: usize,
    /// Gathers started so far.
    started: usize,
    slots: usize,
}

impl Parameters {
    pub const fn new(walk: &Walk) -> Self {
        let config = walk.tables.config;
        if !config.shards_parameters() && !config.uses_slots() {
            return Parameters::Replicated;
        }
        if config.holds_parameters() && matches!(walk.pass, Pass::Train) {
            return Parameters::PerStep { ahead: Some(walk.start()), in_flight: 0, started: 0 };
        }
        let first = walk.next_use(walk.start());
        let (mut holders, mut unit) = (0, 0);
        while unit < walk.tables.units.len() {
            holders += (walk.has(unit) && walk.tables.placements[unit].holds) as usize;
            unit += 1;
        }
        let wanted = prefetch(walk).saturating_add(1);
        let slots = if wanted < holders { wanted } else { holders };
        Parameters::PerUse(Ring { current: first, ahead: first, in_flight: 0, started: 0, slots })
    }

    /// Before the step at `cursor`: starts the gathers that are due and waits for the one that the step needs.
    pub const fn before(&mut self, walk: &Walk, cursor: &Cursor, ops: &mut Ops) {
        match self {
            Parameters::Replicated => {}
            Parameters::PerUse(ring) => ring.before(walk, cursor.position, ops),
            Parameters::PerStep { ahead, in_flight, started } => {
                let Some(unit) = starts_hold(walk, cursor) else { return };
                while let Some(place) = *ahead {
                    if *in_flight > walk.tables.config.prefetch {
                        break;
                    }
                    if let Some(unit) = starts_hold(walk, &place) {
                        ops.push(Op::Gather { unit, slot: *started });
                        *started += 1;
                        *in_flight += 1;
                    }
                    let next = walk.next(place);
                    *ahead = if walk.step(&next).is_some() { Some(next) } else { None };
                }
                ops.push(Op::Wait { unit });
                *in_flight -= 1;
            }
        }
    }

    /// After the step at `cursor`: releases what no later step of this use needs.
    pub const fn after(&mut self, walk: &Walk, cursor: &Cursor, ops: &mut Ops) {
        match self {
            Parameters::Replicated => {}
            Parameters::PerUse(ring) => ring.after(walk, cursor.position, ops),
            Parameters::PerStep { .. } => {
                if let Some(step) = walk.step(cursor)
                    && step.turn.backward
                    && step.turn.micro_batch + 1 == walk.tables.config.micro_batches
                    && walk.tables.placements[step.unit].holds
                {
                    // An owner comes before what is tied to it, so its own backward is the last use of both.
                    ops.push(Op::Release { unit: step.unit });
                }
            }
        }
    }
}

/// The unit whose hold starts with the step at `cursor`: that of the first micro-batch forward.
const fn starts_hold(walk: &Walk, cursor: &Cursor) -> Option<usize> {
    match walk.step(cursor) {
        Some(step) if !step.turn.backward && step.turn.micro_batch == 0 && walk.tables.placements[step.unit].holds => {
            Some(step.unit)
        }
        _ => None,
    }
}

/// Uses that are gathered ahead. Widening is work of this rank alone: there is nothing to be early for.
const fn prefetch(walk: &Walk) -> usize {
    if walk.tables.config.shards_parameters() { walk.tables.config.prefetch } else { 0 }
}

impl Ring {
    const fn before(&mut self, walk: &Walk, position: usize, ops: &mut Ops) {
        let Some(current) = self.current else { return };
        if current.first != position {
            return;
        }
        let gathers = walk.tables.config.shards_parameters();
        while let Some(ahead) = self.ahead {
            if self.in_flight > prefetch(walk) || self.is_held(walk, ahead.unit) {
                break;
            }
            let (unit, slot) = (ahead.unit, self.started % self.slots);
            ops.push(if gathers { Op::Gather { unit, slot } } else { Op::Widen { unit, slot } });
            self.started += 1;
            self.in_flight += 1;
            self.ahead = walk.next_use(ahead.end);
        }
        if gathers {
            ops.push(Op::Wait { unit: current.unit });
        }
    }

    const fn after(&mut self, walk: &Walk, position: usize, ops: &mut Ops) {
        let Some(current) = self.current else { return };
        if current.last == position {
            ops.push(Op::Release { unit: current.unit });
            self.in_flight -= 1;
            self.current = walk.next_use(current.end);
        }
    }

    /// Whether a use between `current` and `ahead` holds `unit` already. Else it would be gathered twice at one time.
    const fn is_held(&self, walk: &Walk, unit: usize) -> bool {
        let mut between = self.current;
        while let (Some(held), Some(ahead)) = (between, self.ahead)
            && held.first < ahead.first
        {
            if held.unit == unit {
                return true;
            }
            between = walk.next_use(held.end);
        }
        false
    }
}
