//! Schedule: checked layout in, frozen tables of ops out, one for each pipeline stage: its ranks all follow the same.
//! Never rejects user input, never reads a file.
//!
//! A stage walks its chunks and micro-batches in the order of [`crate::pipeline::Turns`], units forward or back in each.
//! Communication is placed around that walk: parameters are gathered `prefetch` uses ahead (`parameters`), a bucket is
//! reduced once its last gradient is there and each later phase of its sum runs one bucket later, so that a rank that is
//! late by less than a bucket delays nobody (`gradients`). What crosses to another stage leaves as soon as it is there.

mod gradients;
mod op;
mod parameters;
mod walk;

use crate::layout::Tables;

use gradients::Gradients;
pub use op::{Op, Parcel, Pass};
use parameters::Parameters;
use walk::{Step, Walk};

/// Room for the ops of one schedule that is certainly enough.
pub const fn op_bound(pass: Pass, tables: &Tables, stage: usize) -> usize {
    let walk = Walk::new(pass, tables, stage);
    // Around each computation: gather, wait, release, claim, recompute, reduce, settle, combine, and two spreads; around
    // each turn: receive, clear and send; at the end: update, gather and wait of each unit, and what ties need.
    10 * walk.steps() + 3 * walk.turns.count() + 3 * tables.units.len() + 8
}

/// Fills in the ops of a pipeline stage and returns their number. `out` has [`op_bound`] entries; `slots`, scratch, has as
/// many as the stage has slots for activations.
pub const fn fill_ops(pass: Pass, tables: &Tables, stage: usize, slots: &mut [usize], out: &mut [Op]) -> usize {
    let walk = Walk::new(pass, tables, stage);
    let mut ops = Ops { out, len: 0 };
    let mut parameters = Parameters::new(&walk);
    let mut gradients = Gradients::NEW;
    let mut cursor = walk.start();
    while let Some(step) = walk.step(&cursor) {
        let slot = take_slot(&walk, step, slots);
        arrive(&walk, step, slot, &mut ops);
        parameters.before(&walk, &cursor, &mut ops);
        compute(&walk, step, slot, &mut gradients, &mut ops);
        parameters.after(&walk, &cursor, &mut ops);
        leave(&walk, step, &mut ops);
        if step.turn.backward {
            gradients.reduce(&walk, step, &mut ops);
            give_slot(&walk, step, slots, slot);
        }
        cursor = walk.next(cursor);
    }
    if let Pass::Train = pass {
        gradients.finish(&walk, &mut ops);
        ops.push(Op::Agree);
        update(&walk, &mut ops);
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

/// The slot for the activations of a step: the lowest free one where a forward turn begins, the one it took from there on.
const fn take_slot(walk: &Walk, step: Step, slots: &mut [usize]) -> usize {
    // What holds a slot: chunk and micro-batch as one number, 0 for nothing.
    let holder = 1 + step.turn.micro_batch * walk.tables.chunks.len() + step.turn.chunk;
    let begins = !step.turn.backward && walk.is_first(step.unit);
    let wanted = if begins { 0 } else { holder };
    let mut slot = 0;
    while slots[slot] != wanted {
        slot += 1;
    }
    slots[slot] = holder;
    slot
}

/// Gives a slot up where its backward turn ends.
const fn give_slot(walk: &Walk, step: Step, slots: &mut [usize], slot: usize) {
    let ends = step.turn.backward && walk.is_first(step.unit);
    if ends {
        slots[slot] = 0;
    }
}

/// Takes in what another pipeline stage has sent, where a turn begins.
const fn arrive(walk: &Walk, step: Step, slot: usize, ops: &mut Ops) {
    let Step { unit, turn } = step;
    let micro_batch = turn.micro_batch;
    if !turn.backward && walk.is_first(unit) && unit > 0 {
        ops.push(Op::Receive { parcel: Parcel::Activations, unit, micro_batch, slot });
    }
    if turn.backward && walk.tables.leaves(unit) {
        ops.push(Op::Receive { parcel: Parcel::Gradients, unit, micro_batch, slot });
    }
}

/// Runs a unit, with the places for its results made free before.
const fn compute(walk: &Walk, step: Step, slot: usize, gradients: &mut Gradients, ops: &mut Ops) {
    let Step { unit, turn } = step;
    let micro_batch = turn.micro_batch;
    if !turn.backward {
        if walk.tables.leaves(unit) {
            ops.push(Op::Clear { parcel: Parcel::Activations });
        }
        ops.push(Op::Forward { unit, micro_batch, slot });
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
}

/// Sends what another pipeline stage waits for, where a turn ends.
const fn leave(walk: &Walk, step: Step, ops: &mut Ops) {
    let Step { unit, turn } = step;
    if !turn.backward && walk.tables.leaves(unit) {
        ops.push(Op::Send { parcel: Parcel::Activations, unit, micro_batch: turn.micro_batch });
    }
    if turn.backward && walk.is_first(unit) && unit > 0 {
        ops.push(Op::Send { parcel: Parcel::Gradients, unit, micro_batch: turn.micro_batch });
    }
}

/// Updates the units of the stage; where parameters are replicated but optimizer state is not, all-gathers what peers
/// updated; brings mirrors of tied parameters up to date.
const fn update(walk: &Walk, ops: &mut Ops) {
    let config = walk.tables.config;
    let gathers = config.shards_optimizer() && !config.shards_parameters();
    let mut unit = 0;
    while unit < walk.tables.units.len() {
        if walk.has(unit) && walk.tables.placements[unit].holds {
            if walk.tables.units[unit].params > 0 {
                ops.push(Op::Update { unit });
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
