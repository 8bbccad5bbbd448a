//! Schedule: checked layout in, frozen tables of ops out. Each pipeline stage has one table, which all of its ranks
//! follow. Never rejects user input, never reads a file.
//!
//! A pipeline stage walks its chunks and micro-batches in the order of `pipeline::Turns`, and in each the units forward
//! or backward. Communication is placed around that walk: parameters are gathered `prefetch` uses ahead (`parameters`).
//! A bucket is reduced once its last gradient is there, and each later phase of its sum runs one bucket later, so that
//! a rank that is late by less than a bucket does not delay other ranks (`gradients`). Parcels for other pipeline stages
//! leave as soon as they are ready.

mod directions;
mod gradients;
mod op;
mod parameters;
mod publish;
mod tier;
mod traits;
mod walk;

use crate::layout::{Bucket, Tables};
use crate::pipeline::{Chunk, Pass};

use directions::Directions;
use gradients::DueBucket;
pub use op::{Op, Parcel, Piece};
use parameters::Parameters;
use tier::Window;
pub use traits::{Class, OpTraits, Stream};
use walk::{PipelineStageWalk, WalkStep};

/// An upper bound on the ops of one schedule, slightly more than it has, computed without walking it.
pub const fn ops_max(pass: Pass, tables: &Tables, pipeline: usize) -> usize {
    if tables.config.serves() && matches!(pass, Pass::Train) {
        return 0;
    }
    let (mut ops, mut chunk) = (!matches!(pass, Pass::Publish) as usize, pipeline);
    while chunk < tables.chunks.len() {
        ops += ops_of_chunk(pass, tables, chunk);
        chunk += tables.config.mesh.pipeline;
    }
    ops
}

const fn ops_of_chunk(pass: Pass, tables: &Tables, chunk: usize) -> usize {
    let config = tables.config;
    let trains = matches!(pass, Pass::Train);
    let forwards = if trains { config.micro_batches } else { 1 };
    let turns = if trains { 2 * forwards } else { forwards };
    // At the ends of a turn: receive, clear and send.
    let mut ops = if tables.chunks.len() > 1 { 3 * turns } else { 0 };
    let Chunk { first, end } = tables.chunks[chunk];
    if let Pass::Publish = pass {
        return publish::ops_max(tables, first, end);
    }
    let mut unit = first;
    while unit < end {
        let uses = if trains && config.holds_parameters() { 1 } else { turns };
        let is_slotted = tables.padded(unit) > 0 && (config.shards_parameters() || config.uses_slots());
        let recomputes = trains && config.recomputes(tables.units, unit);
        // Gather, wait and release, and the fetch of a shard.
        let each = 3 + config.offloads_parameters() as usize;
        ops += turns + if is_slotted { each * uses } else { 0 } + if recomputes { forwards } else { 0 };
        // Store and fetch of its activations.
        ops += if trains && tables.stores_activations(unit) { 2 * forwards } else { 0 };
        unit += 1;
    }
    if !trains {
        return ops;
    }
    // Update, and the ops that bring replicas and mirrors up to date.
    ops += 4 * (end - first);
    if config.updates_in_pieces() {
        // Fetch, update and store.
        let mut unit = first;
        while unit < end {
            ops += 3 * tables.pieces(unit);
            unit += 1;
        }
    }
    if config.optimizer.orthogonalizes() {
        // Its momentum.
        ops += end - first;
    }
    while unit > first {
        let bucket = Bucket::ending_at(tables, unit - 1);
        // Claim, reduce and settle, and phases of some layouts only; fold, two spreads, and send and receive for ties.
        let (combines, subtotals) = (config.mesh.replica > 1, config.subtotal_axis().is_some());
        let phases = 3 + combines as usize + subtotals as usize;
        let trips = if config.offloads_gradients() { 2 } else { 0 };
        ops += if bucket.elements > 0 { (phases + trips) * config.reductions() + 5 } else { 0 };
        unit = bucket.first;
    }
    ops
}

/// Scratch: the slots and gathers that a schedule uses so far.
pub struct ScheduleScratch<'s> {
    /// At least one entry for each slot for activations of the pipeline stage, all 0.
    pub slots: &'s mut [usize],
    /// An entry for each unit, all `false`: no parameters are gathered.
    pub gathered: &'s mut [bool],
}

/// Fills in the ops of a pipeline stage and returns their number. `out` has [`ops_max`] entries.
pub const fn fill_ops(pass: Pass, tables: &Tables, pipeline: usize, taken: ScheduleScratch, out: &mut [Op]) -> usize {
    let walk = PipelineStageWalk::new(pass, tables, pipeline);
    let mut ops = Ops { out, len: 0 };
    let mut parameters = Parameters::new(&walk);
    let mut gradients = DueBucket::NEW;
    let mut window = Window::new(&walk);
    if let Pass::Publish = pass {
        publish::offer_all(&walk, &mut window, &mut ops);
        return ops.len;
    }
    let trains = matches!(pass, Pass::Train);
    if trains && tables.config.serves() {
        return 0;
    }
    // Sums of gradients are there only after the backward, unless they are those of the step before, whose pieces come unit by unit.
    let is_early = !tables.config.offloads_gradients() && !tables.config.updates_on_host();
    let at_use = tables.config.updates_in(pass);
    if trains && is_early && !at_use {
        window.fill(&walk, &mut ops);
    }
    let (mut cursor, mut slot) = (walk.start(), 0);
    while let Some(step) = cursor.step {
        if walk.begins(step) {
            slot = find_slot(&walk, step, taken.slots);
            arrive(&walk, step, slot, &mut ops);
        }
        parameters.before(&walk, &cursor, taken.gathered, &mut window, &mut ops);
        if at_use {
            window.fill(&walk, &mut ops);
        }
        compute(&walk, step, slot, &mut gradients, &mut ops);
        parameters.after(&walk, &cursor, taken.gathered, &mut ops);
        leave(&walk, step, &mut ops);
        if step.turn.backward {
            gradients.reduce(&walk, step, &mut ops);
            if walk.is_first(step.unit) {
                taken.slots[slot] = 0;
            }
        }
        cursor = walk.next(cursor);
    }
    if trains {
        gradients.finish(&walk, &mut ops);
        if !is_early && !at_use {
            window.fill(&walk, &mut ops);
        }
        ops.push(Op::Agree);
        if !at_use {
            update(&walk, window, &mut ops);
        }
    }
    ops.len
}

/// Appends ops.
struct Ops<'a> {
    out: &'a mut [Op],
    len: usize,
}

impl Ops<'_> {
    const fn push(&mut self, op: Op) {
        self.out[self.len] = op;
        self.len += 1;
    }
}

/// The slot for the activations of a turn that begins: the lowest free one forward, and the same one backward.
const fn find_slot(walk: &PipelineStageWalk, step: WalkStep, slots: &mut [usize]) -> usize {
    // The holder of a slot: chunk and micro-batch as one number, or 0 if it is free.
    let holder = 1 + step.turn.micro_batch * walk.tables.chunks.len() + step.turn.chunk;
    let wanted = if step.turn.backward { holder } else { 0 };
    // A single chunk runs backward in the order in which it ran forward, so its slots rotate and need no search.
    let goes_round = walk.tables.config.chunks_per_rank() == 1;
    let mut slot = if goes_round { step.turn.micro_batch % walk.turns.in_flight() } else { 0 };
    while slots[slot] != wanted {
        slot += 1;
    }
    slots[slot] = holder;
    slot
}

/// Receives the parcel from another pipeline stage with which a turn begins.
const fn arrive(walk: &PipelineStageWalk, step: WalkStep, slot: usize, ops: &mut Ops) {
    let WalkStep { unit, turn } = step;
    let micro_batch = turn.micro_batch;
    if !turn.backward && unit > 0 {
        ops.push(Op::Receive { parcel: Parcel::Activations, unit, micro_batch, slot });
    }
    if turn.backward && walk.leaves(unit) {
        ops.push(Op::Receive { parcel: Parcel::Gradients, unit, micro_batch, slot });
    }
}

/// Runs a unit, after the places for its results have been made free.
const fn compute(walk: &PipelineStageWalk, step: WalkStep, slot: usize, gradients: &mut DueBucket, ops: &mut Ops) {
    let WalkStep { unit, turn } = step;
    let micro_batch = turn.micro_batch;
    if !turn.backward {
        if walk.leaves(unit) {
            ops.push(Op::Clear { parcel: Parcel::Activations });
        }
        ops.push(Op::Forward { unit, micro_batch, slot });
        if matches!(walk.pass, Pass::Train) && walk.tables.stores_activations(unit) {
            ops.push(Op::StoreActivations { unit, micro_batch, slot });
        }
        return;
    }
    gradients.claim(walk, step, ops);
    if walk.tables.config.recomputes(walk.tables.units, unit) {
        ops.push(Op::Recompute { unit, micro_batch, slot });
    }
    if walk.is_first(unit) && unit > 0 {
        ops.push(Op::Clear { parcel: Parcel::Gradients });
    }
    ops.push(Op::Backward { unit, micro_batch, slot });
    refill(walk, unit, step, slot, ops);
    if let Some(before) = unit.checked_sub(1) {
        refill(walk, before, step, slot, ops);
    }
}

/// If a backward was the last to read the activations of a unit, fetches those that had the same place before them.
const fn refill(walk: &PipelineStageWalk, unit: usize, backward: WalkStep, slot: usize, ops: &mut Ops) {
    if let Some(before) = walk.tables.takes_turns_after(unit)
        && walk.tables.last_reader(unit) == backward.unit
    {
        ops.push(Op::FetchActivations { unit: before, micro_batch: backward.turn.micro_batch, slot });
    }
}

/// Sends the parcel for another pipeline stage with which a turn ends.
const fn leave(walk: &PipelineStageWalk, step: WalkStep, ops: &mut Ops) {
    let WalkStep { unit, turn } = step;
    if !turn.backward && walk.leaves(unit) {
        ops.push(Op::Send { parcel: Parcel::Activations, unit, micro_batch: turn.micro_batch });
    }
    if turn.backward && walk.is_first(unit) && unit > 0 {
        ops.push(Op::Send { parcel: Parcel::Gradients, unit, micro_batch: turn.micro_batch });
    }
}

/// Updates the units of the pipeline stage. If parameters are replicated but optimizer state is not, all-gathers the
/// parameters that peers have updated. Brings mirrors of tied parameters up to date.
const fn update(walk: &PipelineStageWalk, mut window: Window, ops: &mut Ops) {
    let config = walk.tables.config;
    let gathers = config.shards_optimizer() && !config.shards_parameters();
    let mut directions = Directions::NEW;
    let mut unit = 0;
    while unit < walk.tables.units.len() {
        if walk.has(unit) && walk.tables.placements[unit].holds {
            if walk.tables.units[unit].params > 0 {
                directions.before(walk, unit, ops);
                if config.updates_in_pieces() {
                    window.update(walk, unit, ops);
                } else {
                    ops.push(Op::Update { unit, piece: None });
                }
                if walk.mirror_of(unit).is_some() {
                    ops.push(Op::Send { parcel: Parcel::TiedParameters, unit, micro_batch: 0 });
                }
            } else {
                ops.push(Op::Receive { parcel: Parcel::TiedParameters, unit, micro_batch: 0, slot: 0 });
            }
            if gathers {
                ops.push(Op::Gather { unit, slot: 0 });
            }
        }
        unit += 1;
    }
    unit = 0;
    while gathers && unit < walk.tables.units.len() {
        if walk.has(unit) && walk.tables.placements[unit].holds {
            ops.push(Op::Wait { unit });
        }
        unit += 1;
    }
}
