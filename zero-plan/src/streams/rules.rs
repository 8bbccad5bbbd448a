//! Rules: which events the ops of a schedule need, and why. They follow the order in which schedules are made, not places.

use super::{Queued, Stream};
use crate::layout::{Bucket, Tables};
use crate::pipeline::Pass;
use crate::schedule::{Op, Parcel};

/// An op by its place in the table, if there was one.
type Last = Option<usize>;

/// What a walk over a table has seen: scratch, all `None` at first.
pub struct Seen<'s> {
    /// For each unit, its last gather, with the slot of it.
    pub gathers: &'s mut [Option<(usize, usize)>],
    /// For each place for gathered parameters, its last release: units have a place of their own, or take turns with fewer.
    pub releases: &'s mut [Option<usize>],
    /// For each slot for activations, the last op that computed on it.
    pub slots: &'s mut [Option<usize>],
    /// For each bucket, the last backward before its last offer.
    pub offers: &'s mut [Option<usize>],
    /// For each bucket, the last settle that read its staging: buckets that share a slot have the entry of its number.
    pub settles: &'s mut [Option<usize>],
    /// For each bucket, the spread of its directions.
    pub spreads: &'s mut [Option<usize>],
}

/// Fills in the queue of a table: `out` has as many entries as there are `ops`.
pub const fn fill_queue(pass: Pass, tables: &Tables, ops: &[Op], seen: Seen, out: &mut [Queued]) {
    let mut rules = Rules {
        tables,
        trains: matches!(pass, Pass::Train),
        seen,
        halves: [None; 2],
        backward: None,
        updated: None,
        reduced: None,
        directed: None,
        arrived: [None; 2],
    };
    let mut known = [[0; Stream::ALL.len()]; Stream::ALL.len()];
    let mut op = 0;
    while op < ops.len() {
        let stream = Stream::of(ops[op]);
        out[op] = Queued::of(stream);
        if let Some(before) = rules.need(ops[op]) {
            let other = out[before].stream;
            // The other streams wait for `Compute` alone, so each knows about `Compute` by its own waits only, and nothing
            // reaches it by way of a third stream.
            if other as usize != stream as usize && known[stream as usize][other as usize] <= before {
                known[stream as usize][other as usize] = before + 1;
                out[op].after = Some(before as u32);
            }
        }
        rules.pass(op, ops[op]);
        op += 1;
    }
}

struct Rules<'a, 's> {
    tables: &'a Tables<'a>,
    trains: bool,
    seen: Seen<'s>,
    /// The last op on each of the two places for gradients of activations, which units take turns with.
    halves: [Last; 2],
    /// The last backward, update (or receipt of updated parameters), and op of the stream `Reduce`.
    backward: Last,
    updated: Last,
    reduced: Last,
    /// The last momentum.
    directed: Last,
    /// The last activations and gradients that have come from another pipeline stage.
    arrived: [Last; 2],
}

impl Rules<'_, '_> {
    /// The op that must be done before this one begins. None needs more than one: whatever it touches, one op of another
    /// stream touched last.
    const fn need(&self, op: Op) -> Last {
        match op {
            // Otherwise it would overwrite parameters that layers still read.
            Op::Gather { unit, slot } if self.tables.config.shards_parameters() => {
                self.seen.releases[self.gathered_at(unit, slot)]
            }
            // It gathers what this rank, too, has updated; whatever read the replica came before that.
            Op::Gather { .. } => self.updated,
            // Replicas are gathered for the next pass, which begins when this one has ended in all streams.
            Op::Wait { unit } if self.tables.config.shards_parameters() => match self.seen.gathers[unit] {
                Some((gather, _)) => Some(gather),
                None => None,
            },
            // In an evaluation it comes from what this rank has sent before, so nothing is computed meanwhile.
            Op::Receive { parcel: Parcel::Activations, slot, .. } if self.trains => self.seen.slots[slot],
            Op::Receive { parcel: Parcel::Gradients, unit, .. } => self.halves[unit % 2],
            Op::Forward { unit, .. } if unit > 0 && self.is_first(unit) => self.arrived[0],
            Op::Backward { unit, .. } if self.tables.leaves(unit) => self.arrived[1],
            // Its staging may be written when this rank, as its peers, has summed what lay there.
            Op::Claim { bucket } => self.seen.settles[self.staging_of(bucket)],
            Op::Settle { bucket, .. } => self.seen.offers[bucket],
            // All that is spread is known to be summed: it is in the same stream.
            Op::Agree => self.reduced,
            // Updates that still read what lies where directions go come before that.
            Op::Spread { axis, .. } if self.tables.config.spreads_directions(axis) => self.directed,
            Op::Update { unit } if self.tables.is_orthogonalized(unit) => {
                self.seen.spreads[self.tables.placements[unit].bucket]
            }
            _ => None,
        }
    }

    /// Goes past an op.
    const fn pass(&mut self, at: usize, op: Op) {
        match op {
            Op::Gather { unit, slot } => self.seen.gathers[unit] = Some((at, slot)),
            Op::Release { unit } => {
                if let Some((_, slot)) = self.seen.gathers[unit] {
                    self.seen.releases[self.gathered_at(unit, slot)] = Some(at);
                }
            }
            Op::Forward { slot, .. } | Op::Recompute { slot, .. } => self.seen.slots[slot] = Some(at),
            Op::Backward { unit, slot, .. } => {
                self.seen.slots[slot] = Some(at);
                self.backward = Some(at);
                self.halves[unit % 2] = Some(at);
                if unit > 0 && !self.is_first(unit) {
                    self.halves[(unit - 1) % 2] = Some(at);
                }
            }
            Op::Spread { bucket, axis } if self.tables.config.spreads_directions(axis) => {
                self.seen.spreads[bucket] = Some(at);
            }
            Op::Momentum { .. } => self.directed = Some(at),
            Op::Update { .. } | Op::Receive { parcel: Parcel::TiedParameters, .. } => self.updated = Some(at),
            Op::Receive { parcel: Parcel::Activations, .. } => self.arrived[0] = Some(at),
            Op::Receive { parcel: Parcel::Gradients, .. } => self.arrived[1] = Some(at),
            Op::Reduce { bucket, .. } => self.seen.offers[bucket] = self.backward,
            Op::Settle { bucket, .. } => self.seen.settles[self.staging_of(bucket)] = Some(at),
            _ => {}
        }
        if let Stream::Reduce = Stream::of(op) {
            self.reduced = Some(at);
        }
    }

    const fn is_first(&self, unit: usize) -> bool {
        self.tables.chunks[self.tables.placements[unit].chunk].first == unit
    }

    /// Which place a unit is gathered into.
    const fn gathered_at(&self, unit: usize, slot: usize) -> usize {
        if self.tables.config.holds_parameters() { unit } else { slot }
    }

    const fn staging_of(&self, bucket: usize) -> usize {
        let Bucket { slot, .. } = self.tables.buckets[bucket];
        match slot {
            Some(slot) => slot,
            None => bucket,
        }
    }
}
