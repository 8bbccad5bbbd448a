//! Rules: the events that ops of a schedule need, and why. They follow from how schedules are made, not from places.

use super::Queued;
use crate::config::{Config, Offload};
use crate::layout::{Bucket, Tables};
use crate::pipeline::Pass;
use crate::schedule::{Op, Parcel, Piece, Stream};

/// The last op of some kind, by its place in the table, if there was one.
type Last = Option<usize>;

/// For each stream, how many ops at the start of a table include all of its ops that are known to be done.
pub type KnownStreams = [u32; Stream::ALL.len()];

/// The ops that a walk over a table has seen: scratch, all `None` or 0 at first.
pub struct Seen<'s> {
    /// For each op, what is known to be done once it is done.
    pub known: &'s mut [KnownStreams],
    /// For each unit, its last gather, with its slot.
    pub gathers: &'s mut [Option<(usize, usize)>],
    /// For each place for gathered parameters, its last release. Units have their own places, or take turns with fewer.
    pub releases: &'s mut [Option<usize>],
    /// For each slot for activations, the last op that computed on it.
    pub slots: &'s mut [Option<usize>],
    /// For each bucket, the last backward before its last offer.
    pub offers: &'s mut [Option<usize>],
    /// For each bucket, the last settle that read its staging. Buckets that share a slot use the slot's entry.
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
        window: [None; Offload::SLOTS_MAX],
        sums: [None; Offload::SUM_SLOTS_MAX],
        stored: None,
        shards: [None; Offload::SHARD_SLOTS],
        given: 0,
        updated_shard: None,
        activations: [None; Offload::SLOTS_MAX],
        offered: None,
    };
    let mut streams: [KnownStreams; Stream::ALL.len()] = [[0; Stream::ALL.len()]; Stream::ALL.len()];
    let mut op = 0;
    while op < ops.len() {
        let stream = queue_of(tables.config, ops[op]);
        let known = &mut streams[stream as usize];
        out[op] = Queued::of(stream);
        if let Some(before) = rules.need(ops[op])
            && known[out[before].stream as usize] <= before as u32
        {
            // Otherwise an earlier wait of this stream implies it.
            join(known, &rules.seen.known[before]);
            out[op].after = Some(before as u32);
        }
        known[stream as usize] = op as u32 + 1;
        rules.seen.known[op] = *known;
        rules.pass(op, ops[op]);
        op += 1;
    }
}

/// The queue of an op. A rank whose device has no streams does its ops one after another, and only tiers work beside it.
const fn queue_of(config: &Config, op: Op) -> Stream {
    let stream = op.traits().stream;
    if config.device.has_streams() || stream.is_of_tier() { stream } else { Stream::Compute }
}

const fn join(known: &mut KnownStreams, other: &KnownStreams) {
    let mut stream = 0;
    while stream < known.len() {
        known[stream] = if other[stream] > known[stream] { other[stream] } else { known[stream] };
        stream += 1;
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
    /// The last activations and gradients that have arrived from another pipeline stage.
    arrived: [Last; 2],
    /// The last op on each slot of the window, and on each slot for sums.
    window: [Last; Offload::SLOTS_MAX],
    sums: [Last; Offload::SUM_SLOTS_MAX],
    /// The last op that took sums to their tier.
    stored: Last,
    /// The last op on each slot for fetched shards, and how many shards have been gathered from there.
    shards: [Last; Offload::SHARD_SLOTS],
    given: usize,
    /// If parameters are updated at their use: the last store since a shard was fetched.
    updated_shard: Last,
    /// The last op on each place that units take turns with for their activations.
    activations: [Last; Offload::SLOTS_MAX],
    /// The last offer.
    offered: Last,
}

impl Rules<'_, '_> {
    /// The op that must be done before this one begins. No op needs more than one, because all bytes that it touches
    /// were last touched by one op of another stream.
    const fn need(&self, op: Op) -> Last {
        match op {
            // It gives a shard that has been fetched; no queue but its own reads the place that it overwrites.
            Op::Gather { .. } | Op::Offer { .. } if self.tables.config.gives_fetched() => {
                self.shards[self.given % Offload::SHARD_SLOTS]
            }
            // The fetch right before it has waited for the release of what it overwrites.
            Op::Gather { .. } | Op::Offer { .. } if self.tables.config.gathers_fetched() => self.shards[0],
            Op::FetchShard { unit, slot } if self.tables.config.gathers_fetched() => {
                self.seen.releases[self.gathered_at(unit, slot)]
            }
            // Otherwise the gather would overwrite parameters that layers still read.
            Op::Gather { unit, slot } if self.tables.config.shards_parameters() => {
                self.seen.releases[self.gathered_at(unit, slot)]
            }
            // It gathers parameters that this rank has updated, too; all reads of the replica came before that update.
            Op::Gather { .. } => self.updated,
            // The host has updated parameters once these have come back.
            Op::Send { parcel: Parcel::TiedParameters, .. } if self.updates_on_host() => self.updated,
            // Publications are counted in one order.
            Op::Receive { parcel: Parcel::TiedParameters, .. }
                if self.updates_on_host() && self.tables.config.shards_optimizer() =>
            {
                self.updated
            }
            // Replicas are gathered for the next pass, which begins after this one has ended in all streams.
            Op::Wait { unit } if self.tables.config.shards_parameters() => match self.seen.gathers[unit] {
                Some((gather, _)) => Some(gather),
                None => None,
            },
            // In an evaluation, the parcel depends on one that this rank has sent, so nothing is computed meanwhile.
            Op::Receive { parcel: Parcel::Activations, slot, .. } if self.trains => self.seen.slots[slot],
            Op::Receive { parcel: Parcel::Gradients, unit, .. } => self.halves[unit % 2],
            Op::Forward { unit, .. } if unit > 0 && self.is_first(unit) => self.arrived[0],
            Op::Backward { unit, .. } if self.tables.leaves(unit) => self.arrived[1],
            // Its place may be written once the activations of the unit before it there are stored.
            Op::Forward { unit, .. } if self.trains => self.turn_of(unit),
            // Its input is the output of the unit before it. Its own activations are there, because the unit after it has read its
            // output.
            Op::Recompute { unit, .. } | Op::Backward { unit, .. } if unit > 0 => self.turn_of(unit - 1),
            // They are stored once they are made, and fetched once the backward has read what has been in their place since then.
            Op::StoreActivations { unit, .. } | Op::FetchActivations { unit, .. } => self.turn_of(unit),
            // Its staging may be written once this rank, like its peers, has summed the earlier content.
            Op::Claim { bucket } => self.seen.settles[self.staging_of(bucket)],
            // The sum is made in a slot whose last sum has been stored, or that has the sum so far. Where ops have streams, a sum
            // waits for its offer, so the offer waits for the slot: no op waits for two.
            Op::Settle { bucket, .. } if self.is_summed_by(op, bucket) && !self.has_streams() => self.slot_of(bucket),
            Op::Reduce { bucket, .. } if self.has_streams() => self.slot_of(bucket),
            Op::Combine { bucket, .. } if self.is_summed_by(op, bucket) => self.slot_of(bucket),
            Op::Settle { bucket, .. } => self.seen.offers[bucket],
            // What was in its slot last has been stored, and so have its own sums so far, which were in the same slot.
            Op::FetchSums { bucket, .. } if self.tables.config.mesh.replica == 1 => self.slot_of(bucket),
            // Other replicas have read from that slot, too: the last store came after that.
            Op::FetchSums { .. } => self.stored,
            // If its pieces were updated in this pass, the store of the last one comes after the last shard in its slot was given.
            Op::FetchShard { .. } if self.updated_shard.is_some() => self.updated_shard,
            // Otherwise it waits until that shard was given.
            Op::FetchShard { slot, .. } => self.shards[slot],
            Op::StoreSums { bucket, .. } => self.slot_of(bucket),
            // Spreads come after their sums, in the same stream.
            Op::Agree => self.reduced,
            // The last momentum is after all updates that still read the place where directions go.
            Op::Spread { axis, .. } if self.tables.config.spreads_directions(axis) => self.directed,
            // The first pieces go to the host once all sums are made; it updates them once those that it keeps are there.
            Op::Store { piece: Piece { slot, .. }, .. } if self.updates_on_host() && self.window[slot].is_none() => {
                self.reduced
            }
            Op::Update { piece: Some(Piece { slot, .. }), .. }
                if self.updates_on_host() && self.window[slot].is_none() =>
            {
                self.stored
            }
            // The first pieces are fetched once all sums are stored.
            Op::Fetch { piece: Piece { slot, .. }, .. } if self.window[slot].is_none() => self.stored,
            // A piece is fetched after the store that made its slot free, updated after its fetch, and stored after that. If the host
            // updates it, store and fetch change places.
            Op::Fetch { piece: Piece { slot, .. }, .. }
            | Op::Update { piece: Some(Piece { slot, .. }), .. }
            | Op::Store { piece: Piece { slot, .. }, .. } => self.window[slot],
            Op::Update { unit, .. } if self.tables.is_orthogonalized(unit) => {
                self.seen.spreads[self.tables.placements[unit].bucket]
            }
            Op::StoreOffered { .. } => self.offered,
            _ => None,
        }
    }

    /// Notes an op.
    const fn pass(&mut self, at: usize, op: Op) {
        match op {
            Op::Gather { unit, slot } => {
                self.seen.gathers[unit] = Some((at, slot));
                self.give(at);
            }
            Op::Offer { .. } => {
                self.give(at);
                self.offered = Some(at);
                if self.tables.config.gathers_fetched() {
                    self.seen.releases[0] = Some(at);
                }
            }
            Op::FetchShard { .. } if self.tables.config.gathers_fetched() => self.shards[0] = Some(at),
            Op::FetchShard { slot, .. } => (self.shards[slot], self.updated_shard) = (Some(at), None),
            Op::Store { .. } if self.tables.config.updates_at_use() => self.updated_shard = Some(at),
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
            Op::Update { .. } if !self.tables.config.takes_back_pieces() => self.updated = Some(at),
            Op::Fetch { .. } if self.tables.config.takes_back_pieces() => self.updated = Some(at),
            Op::Receive { parcel: Parcel::TiedParameters, .. } => self.updated = Some(at),
            Op::Receive { parcel: Parcel::Activations, .. } => self.arrived[0] = Some(at),
            Op::Receive { parcel: Parcel::Gradients, .. } => self.arrived[1] = Some(at),
            Op::Reduce { bucket, .. } => {
                let waits = self.has_streams() && self.tables.buckets[bucket].sums.is_some();
                self.seen.offers[bucket] = if waits { Some(at) } else { self.backward };
            }
            Op::Settle { bucket, .. } => self.seen.settles[self.staging_of(bucket)] = Some(at),
            Op::StoreSums { .. } => self.stored = Some(at),
            _ => {}
        }
        if let Some(bucket) = op.bucket()
            && let Some(slot) = self.tables.buckets[bucket].sums
            && self.touches_sums(op, bucket)
        {
            self.sums[slot] = Some(at);
        }
        if let Op::Forward { unit, .. } | Op::StoreActivations { unit, .. } | Op::FetchActivations { unit, .. } = op {
            self.use_turn(unit, at);
        }
        if let Op::Backward { unit, .. } = op {
            // Its own activations, unless it has only an output, which the backward after it has read.
            if self.tables.last_reader(unit) == unit {
                self.use_turn(unit, at);
            }
            if unit > 0 {
                self.use_turn(unit - 1, at);
            }
        }
        if let Op::Fetch { piece, .. } | Op::Update { piece: Some(piece), .. } | Op::Store { piece, .. } = op {
            self.window[piece.slot] = Some(at);
        }
        if let Stream::Reduce = op.traits().stream {
            self.reduced = Some(at);
        }
    }

    /// Notes an op that gives a shard, if it has been fetched.
    const fn give(&mut self, at: usize) {
        if self.tables.config.gives_fetched() {
            self.shards[self.given % Offload::SHARD_SLOTS] = Some(at);
            self.given += 1;
        }
    }

    /// Whether an op makes the sum of a bucket over all ranks, in the slot of sums that are kept in a tier.
    const fn is_summed_by(&self, op: Op, bucket: usize) -> bool {
        let is_whole = match op {
            Op::Settle { .. } => self.tables.config.mesh.replica == 1,
            Op::Combine { .. } => true,
            _ => false,
        };
        is_whole && self.tables.buckets[bucket].sums.is_some()
    }

    const fn touches_sums(&self, op: Op, bucket: usize) -> bool {
        self.is_summed_by(op, bucket) || matches!(op, Op::Spread { .. } | Op::FetchSums { .. } | Op::StoreSums { .. })
    }

    const fn updates_on_host(&self) -> bool {
        self.tables.config.updates_on_host()
    }

    const fn has_streams(&self) -> bool {
        self.tables.config.device.has_streams()
    }

    /// The last op on the slot in which the sum of a bucket is made.
    const fn slot_of(&self, bucket: usize) -> Last {
        match self.tables.buckets[bucket].sums {
            Some(slot) => self.sums[slot],
            None => None,
        }
    }

    /// The last op on the place that a unit takes in turn for its activations.
    const fn turn_of(&self, unit: usize) -> Last {
        if self.tables.takes_turns(unit) { self.activations[unit % self.tables.activation_turns()] } else { None }
    }

    const fn use_turn(&mut self, unit: usize, at: usize) {
        if self.tables.takes_turns(unit) {
            self.activations[unit % self.tables.activation_turns()] = Some(at);
        }
    }

    const fn is_first(&self, unit: usize) -> bool {
        self.tables.chunks[self.tables.placements[unit].chunk].first == unit
    }

    /// The place that a unit is gathered into.
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
