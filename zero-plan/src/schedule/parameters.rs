//! Parameters: gathers, waits and releases around a walk. The configuration decides between three ways: a unit is
//! gathered for each use (stage 3), or gathered once a step and held (stage 3, `gather: PerStep`), or converted for
//! each use (replicas of another width than layers compute in).

use super::tier::Window;
use super::walk::{PipelineStageWalk, Use, WalkCursor, WalkStep};
use super::{Op, Ops, Pass};
use crate::config::Offload;

pub(super) enum Parameters {
    /// Layers compute on replicas where they lie.
    Replicated,
    /// Each use has its own gather, or its own copy.
    PerUse(Ring),
    /// A unit is gathered before its first use and released after its last.
    PerStep {
        /// The place of the first use whose gather has not started; none if all have.
        ahead: Option<WalkCursor>,
        /// Gathers started and not yet waited for.
        in_flight: usize,
        /// Gathers started so far.
        started: usize,
    },
}

pub(super) struct Ring {
    /// The unit whose flat buffer layers compute on, from the first step of its use to the last.
    current: Option<usize>,
    /// The first use whose gather has not started.
    ahead: Option<Use>,
    /// Uses whose gather has started and which have not been released.
    in_flight: usize,
    /// Gathers started so far.
    started: usize,
    slots: usize,
    /// The first use whose shard is not fetched, and the shards that are, if ranks give them to slots in common.
    to_fetch: Option<Use>,
    fetched: usize,
}

impl Parameters {
    pub const fn new(walk: &PipelineStageWalk) -> Self {
        let config = walk.tables.config;
        if !config.shards_parameters() && !config.uses_slots() {
            return Parameters::Replicated;
        }
        if config.holds_parameters() && matches!(walk.pass, Pass::Train) {
            return Parameters::PerStep { ahead: Some(walk.start()), in_flight: 0, started: 0 };
        }
        let (mut holders, mut unit) = (0, 0);
        while unit < walk.tables.units.len() {
            holders += (walk.has(unit) && walk.tables.placements[unit].holds) as usize;
            unit += 1;
        }
        let wanted = prefetch(walk).saturating_add(1);
        let slots = if wanted < holders { wanted } else { holders };
        let ahead = walk.first_use();
        let to_fetch = if config.gives_fetched() { ahead } else { None };
        Parameters::PerUse(Ring { current: None, ahead, in_flight: 0, started: 0, slots, to_fetch, fetched: 0 })
    }

    /// Before the step at `cursor`: starts the gathers that are due and waits for the one that the step needs.
    /// `held`, scratch, has an entry for each unit.
    pub const fn before(
        &mut self,
        walk: &PipelineStageWalk,
        cursor: &WalkCursor,
        held: &mut [bool],
        window: &mut Window,
        ops: &mut Ops,
    ) {
        match self {
            Parameters::Replicated => {}
            Parameters::PerUse(ring) => ring.before(walk, cursor, held, window, ops),
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
                    *ahead = if next.step.is_some() { Some(next) } else { None };
                }
                ops.push(Op::Wait { unit });
                *in_flight -= 1;
            }
        }
    }

    /// After the step at `cursor`: releases the unit if no later step of this use needs it.
    pub const fn after(&mut self, walk: &PipelineStageWalk, cursor: &WalkCursor, held: &mut [bool], ops: &mut Ops) {
        match self {
            Parameters::Replicated => {}
            Parameters::PerUse(ring) => ring.after(walk, cursor, held, ops),
            Parameters::PerStep { .. } => {
                if let Some(step) = cursor.step
                    && step.turn.backward
                    && step.turn.micro_batch + 1 == walk.tables.config.micro_batches
                    && walk.tables.placements[step.unit].holds
                {
                    // An owner comes before the unit that is tied to it, so its own backward is the last use of both.
                    ops.push(Op::Release { unit: step.unit });
                }
            }
        }
    }
}

/// The unit that is held from the step at `cursor` on, if that is its first forward.
const fn starts_hold(walk: &PipelineStageWalk, cursor: &WalkCursor) -> Option<usize> {
    match cursor.step {
        Some(step) if !step.turn.backward && step.turn.micro_batch == 0 && walk.tables.placements[step.unit].holds => {
            Some(step.unit)
        }
        _ => None,
    }
}

/// The number of uses that are gathered ahead. Conversions wait for no other rank, so starting early has no use.
const fn prefetch(walk: &PipelineStageWalk) -> usize {
    if walk.tables.config.shards_parameters() { walk.tables.config.prefetch } else { 0 }
}

impl Ring {
    const fn before(
        &mut self,
        walk: &PipelineStageWalk,
        cursor: &WalkCursor,
        held: &mut [bool],
        window: &mut Window,
        ops: &mut Ops,
    ) {
        let (Some(WalkStep { unit, .. }), None) = (cursor.step, self.current) else { return };
        let Some(needed) = walk.holder(unit) else { return };
        self.current = Some(needed);
        let gathers = walk.tables.config.shards_parameters();
        self.fetch(walk, window, ops);
        while let Some(ahead) = self.ahead {
            // A unit that is held for an earlier use cannot be gathered again at the same time.
            if self.in_flight > prefetch(walk) || held[ahead.unit] {
                break;
            }
            let (unit, slot) = (ahead.unit, self.started % self.slots);
            window.before_use(walk, unit, ops);
            if walk.tables.config.gathers_fetched() {
                ops.push(Op::FetchShard { unit, slot });
            }
            ops.push(if gathers { Op::Gather { unit, slot } } else { Op::Convert { unit, slot } });
            held[unit] = true;
            self.started += 1;
            self.in_flight += 1;
            self.fetch(walk, window, ops);
            self.ahead = walk.next_use(ahead);
        }
        if gathers {
            ops.push(Op::Wait { unit: needed });
        }
    }

    /// Fetches shards into the slots that are free, in the order of gathers, if ranks give them to slots in common. A unit that is
    /// updated at its use is updated before that, so then only the next shard is fetched: the first units wait for the fewest.
    const fn fetch(&mut self, walk: &PipelineStageWalk, window: &mut Window, ops: &mut Ops) {
        let ahead = if walk.tables.config.updates_in(walk.pass) { 1 } else { Offload::SHARD_SLOTS };
        while let Some(next) = self.to_fetch
            && self.fetched < self.started + ahead
        {
            window.before_use(walk, next.unit, ops);
            ops.push(Op::FetchShard { unit: next.unit, slot: self.fetched % Offload::SHARD_SLOTS });
            self.fetched += 1;
            self.to_fetch = walk.next_use(next);
        }
    }

    const fn after(&mut self, walk: &PipelineStageWalk, cursor: &WalkCursor, held: &mut [bool], ops: &mut Ops) {
        let (Some(unit), Some(step)) = (self.current, cursor.step) else { return };
        // Steps without parameters between two uses belong to neither.
        if walk.holder(step.unit).is_none() || matches!(walk.used_after(*cursor), Some(next) if next == unit) {
            return;
        }
        ops.push(Op::Release { unit });
        held[unit] = false;
        self.in_flight -= 1;
        self.current = None;
    }
}
