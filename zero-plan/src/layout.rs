//! Layout: where everything lies on the ranks of each pipeline stage. Sizes in, constant offsets out. Knows nothing of the
//! order of a step.

mod activations;
mod decoding;
mod inbox;
mod memory;
mod pieces;
mod sizes;

use serde::Serialize;

use crate::config::Config;
use crate::lines::round_up;
use crate::mesh::Axis;
use crate::pipeline::{Chunk, Pass, Turns};
use crate::unit::Unit;

use activations::PlacesInTurn;
pub use decoding::Decoding;
pub(crate) use inbox::{arriving_bytes, terms_bytes, tied_bytes};
pub use memory::{Home, Kind, Memory, Region};
use sizes::RegionSizes;
pub(crate) use sizes::spare_batch_bytes;

/// Staging slots for gradients at stages 2 and 3, and for sums over one replica: one is filled while the other is read.
pub const STAGING_SLOTS: usize = 2;

/// Slots for parcels to another pipeline stage, in each direction: one is filled while the other is read.
pub const OUTGOING_SLOTS: usize = 2;

/// Where a unit lies in the regions that hold a part of every unit of a pipeline stage. Flat buffers count elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Placement {
    /// The chunk that it belongs to.
    pub chunk: usize,
    /// The pipeline stage that the chunk lies on.
    #[serde(rename = "stage")]
    pub pipeline_stage: usize,
    /// Start of its flat buffer if all flat buffers of the pipeline stage follow one another.
    pub start: usize,
    /// Size of its flat buffer: of its parameters, and of their gradients. A tied unit has its own gradients, as large
    /// as its owner's.
    pub padded: usize,
    /// Whether the pipeline stage holds parameters for this unit: its own, or a mirror of an owner's on another
    /// pipeline stage.
    pub holds: bool,
    /// Start of the values that it saves for backward: in the slot of its micro-batch, or, if it is recomputed, in the
    /// region of [`Kind::Recomputed`].
    pub saved_bytes: usize,
    /// Start of its output in the slot of its micro-batch, unless the output leaves for another pipeline stage.
    pub output_bytes: usize,
    /// The bucket of its gradients.
    pub bucket: usize,
    /// Start of its cache in the region of activations during decoding.
    pub cache_bytes: usize,
    /// Start of its activations in their tier, if they are kept in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<usize>,
}

impl Placement {
    /// An empty entry, for a table that is not yet filled.
    pub(crate) const NONE: Self = Self {
        chunk: 0,
        pipeline_stage: 0,
        start: 0,
        padded: 0,
        holds: false,
        saved_bytes: 0,
        output_bytes: 0,
        bucket: 0,
        cache_bytes: 0,
        stored_bytes: None,
    };

    /// Elements of the shard of its flat buffer of one rank along `zero`.
    pub const fn shard(&self, config: &Config) -> usize {
        self.padded / config.mesh.zero
    }

    /// Elements of the part of its flat buffer whose gradients one rank sums.
    pub const fn part(&self, config: &Config) -> usize {
        self.padded / config.mesh.data_ranks()
    }
}

/// Consecutive units of a chunk whose gradients travel in one collective. Buckets are numbered in the order of backward
/// through the whole model: bucket 0 holds the last units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Bucket {
    /// Its first unit in the order of forward, which is the last to get its gradient.
    pub first: usize,
    /// Its last unit in the order of forward.
    pub last: usize,
    /// The pipeline stage that it lies on.
    #[serde(rename = "stage")]
    pub pipeline_stage: usize,
    /// Start of its first unit's flat buffer.
    pub start: usize,
    /// Sum of its flat buffers.
    pub elements: usize,
    /// Start of its local gradients in their region.
    pub staging: usize,
    /// The staging slot that it shares with other buckets, if buckets share slots.
    pub slot: Option<usize>,
    /// Start of its sum over one replica in [`Kind::Partial`], if the plan has that region.
    pub partial: usize,
    /// The slot of [`Kind::Reduced`] in which its sum is made, if sums are kept in a tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<usize>,
}

impl Bucket {
    /// The slot for partial sums that it uses. Buckets take turns with these slots.
    pub const fn partial_slot(&self) -> usize {
        (self.partial > 0) as usize
    }

    /// Whether its local gradients and those of another bucket of its pipeline stage lie in the same place.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.staging < other.staging + other.elements && other.staging < self.staging + self.elements
    }
}

/// The tables made so far, from which layout and schedule are computed.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The units.
    pub units: &'a [Unit],
    /// The chunks, in the order of forward.
    pub chunks: &'a [Chunk],
    /// A placement for each unit; empty while buckets are made.
    pub placements: &'a [Placement],
    /// The buckets; empty while they are made.
    pub buckets: &'a [Bucket],
}

impl Tables<'_> {
    /// The chunk of a unit.
    pub const fn chunk_of(&self, unit: usize) -> usize {
        let mut chunk = 0;
        while self.chunks[chunk].end <= unit {
            chunk += 1;
        }
        chunk
    }

    /// The pipeline stage of a unit.
    pub const fn pipeline_stage_of(&self, unit: usize) -> usize {
        self.chunk_of(unit) % self.config.mesh.pipeline
    }

    /// Whether its pipeline stage holds parameters for it: its own, or a mirror of its owner's.
    pub const fn holds(&self, unit: usize) -> bool {
        self.padded(unit) > 0 && (!self.units[unit].is_tied(unit) || self.is_mirror(unit))
    }

    /// Whether its owner lies on another pipeline stage.
    pub const fn is_mirror(&self, unit: usize) -> bool {
        let source = self.units[unit].source;
        source != unit && self.pipeline_stage_of(source) != self.pipeline_stage_of(unit)
    }

    /// Elements of its flat buffer, which its gradients have too: its parameters, padded so that all parts have the
    /// same length and end on whole lines. Gradients are summed in parts, one for each rank with data of its own.
    pub const fn padded(&self, unit: usize) -> usize {
        let parts = self.config.mesh.data_ranks();
        round_up(self.units[self.units[unit].source].params, parts * self.config.device.alignment())
    }

    /// The tied unit whose parameters lie in `owner`, if there is one: only the last unit of a model may be tied.
    pub const fn tied_to(&self, owner: usize) -> Option<usize> {
        let last = self.units.len() - 1;
        if owner < last && self.units[last].source == owner { Some(last) } else { None }
    }

    /// Whether the optimizer makes matrices of a unit orthogonal. A rank that updates a part of such a matrix needs its
    /// direction whole.
    pub const fn is_orthogonalized(&self, unit: usize) -> bool {
        let Unit { params, matrices, .. } = &self.units[unit];
        self.config.optimizer.orthogonalizes() && *params > 0 && !matrices.are_none()
    }

    /// Whether a spread of its bucket along an axis includes a unit. A spread of sums includes all units, and a spread
    /// of directions those that have directions.
    pub const fn is_spread(&self, unit: usize, axis: Axis) -> bool {
        let of_directions = self.config.spreads_directions(axis);
        self.padded(unit) > 0 && (!of_directions || self.is_orthogonalized(unit))
    }

    /// Elements of a bucket that a spread along an axis makes whole.
    pub const fn spread_elements(&self, bucket: usize, axis: Axis) -> usize {
        if !self.config.spreads_directions(axis) {
            return self.buckets[bucket].elements;
        }
        let Bucket { first, last, .. } = self.buckets[bucket];
        let (mut elements, mut unit) = (0, first);
        while unit <= last {
            elements += if self.is_spread(unit, axis) { self.padded(unit) } else { 0 };
            unit += 1;
        }
        elements
    }

    /// The most activations that a pipeline stage keeps at one time, counted in chunks of micro-batches.
    pub const fn activation_slots(&self, pipeline: usize) -> usize {
        Turns { config: self.config, pass: Pass::Train, pipeline }.in_flight()
    }

    /// Whether the targets of a micro-batch arrive with this unit's forward: only for the first unit of the last chunk.
    pub(crate) const fn takes_targets(&self, unit: usize) -> bool {
        let chunk = self.placements[unit].chunk;
        chunk + 1 == self.chunks.len() && self.chunks[chunk].first == unit
    }

    /// Whether the output of a unit leaves for another pipeline stage.
    pub const fn leaves(&self, unit: usize) -> bool {
        unit + 1 == self.chunks[self.chunk_of(unit)].end && unit + 1 < self.units.len()
    }
}

impl Bucket {
    /// An empty entry, for a table that is not yet filled.
    pub(crate) const NONE: Self = Self {
        first: 0,
        last: 0,
        pipeline_stage: 0,
        start: 0,
        elements: 0,
        staging: 0,
        slot: None,
        partial: 0,
        sums: None,
    };

    /// The bucket whose last unit is `last`. Units before it in its chunk join while all fit in `bucket_bytes`. A tied
    /// unit stays alone, because its gradients go to its owner.
    pub const fn ending_at(tables: &Tables, last: usize) -> Self {
        let chunk = tables.chunks[tables.chunk_of(last)];
        let (mut first, mut elements) = (last, tables.padded(last));
        while first > chunk.first && !tables.units[last].is_tied(last) {
            let joined = elements + tables.padded(first - 1);
            let bytes = joined.saturating_mul(tables.config.precision.reduce.bytes());
            if bytes > tables.config.bucket_bytes && elements > 0 {
                break;
            }
            elements = joined;
            first -= 1;
        }
        Bucket { first, last, elements, pipeline_stage: tables.pipeline_stage_of(last), ..Self::NONE }
    }
}

/// Number of buckets.
pub const fn bucket_count(tables: &Tables) -> usize {
    let (mut count, mut end) = (0, tables.units.len());
    while end > 0 {
        end = Bucket::ending_at(tables, end - 1).first;
        count += 1;
    }
    count
}

/// Fills in the buckets, in the order of backward. `out` has [`bucket_count`] entries.
pub const fn fill_buckets(tables: &Tables, out: &mut [Bucket]) {
    let (mut end, mut i) = (tables.units.len(), 0);
    while i < out.len() {
        out[i] = Bucket::ending_at(tables, end - 1);
        end = out[i].first;
        i += 1;
    }
    let mut pipeline = 0;
    while pipeline < tables.config.mesh.pipeline {
        fill_staging(tables, pipeline, out);
        pipeline += 1;
    }
}

/// Assigns the buckets of a pipeline stage their places.
const fn fill_staging(tables: &Tables, pipeline: usize, out: &mut [Bucket]) {
    let sizes = RegionSizes::of(tables, pipeline);
    let (mut staged, mut start, mut i) = (0, sizes.gradients, 0);
    while i < out.len() {
        if out[i].pipeline_stage == pipeline {
            let bucket = &mut out[i];
            start -= bucket.elements;
            bucket.start = start;
            bucket.staging = if tables.config.shards_gradients() { 0 } else { start };
            if bucket.elements > 0 {
                if tables.config.offloads_gradients() {
                    bucket.sums = Some(staged % sizes.sum_slots(tables.config));
                }
                // Buckets take turns, so that one is filled while the one before it is sent.
                bucket.partial = staged % STAGING_SLOTS * (sizes.bucket_max / tables.config.mesh.zero);
                if tables.config.shards_gradients() {
                    let slot = staged % sizes.staging_slots;
                    bucket.slot = Some(slot);
                    bucket.staging = slot * sizes.bucket_max;
                }
                staged += 1;
            }
        }
        i += 1;
    }
}

/// Fills in the placement of every unit. `out` has as many entries as there are units; `tables` has the buckets.
pub const fn fill_placements(tables: &Tables, out: &mut [Placement]) {
    let mut pipeline = 0;
    while pipeline < tables.config.mesh.pipeline {
        let mut start = 0;
        let mut chunk = pipeline;
        while chunk < tables.chunks.len() {
            start = fill_chunk(tables, chunk, start, out);
            chunk += tables.config.mesh.pipeline;
        }
        decoding::fill_caches(tables, pipeline, out);
        pipeline += 1;
    }
}

/// Places the units of a chunk, whose flat buffers begin at `start`, and returns where they end.
const fn fill_chunk(tables: &Tables, chunk: usize, mut start: usize, out: &mut [Placement]) -> usize {
    let Chunk { first, end } = tables.chunks[chunk];
    let (mut activation, mut stored) = (entering_bytes(tables, chunk), 0);
    let in_turn = PlacesInTurn::of(tables);
    let mut i = first;
    while i < end {
        let padded = tables.padded(i);
        let start_bytes = if tables.takes_turns(i) { in_turn.start(i) } else { activation };
        let (saved, output) = tables.kept_activations(i);
        out[i] = Placement {
            chunk,
            pipeline_stage: chunk % tables.config.mesh.pipeline,
            start,
            padded,
            holds: tables.holds(i),
            saved_bytes: if tables.config.recomputes(tables.units, i) { 0 } else { start_bytes },
            output_bytes: start_bytes + saved,
            bucket: bucket_of(tables.buckets, i),
            cache_bytes: 0,
            stored_bytes: if tables.stores_activations(i) { Some(stored) } else { None },
        };
        if tables.takes_turns(i) {
            stored += tables.activation_blocks(i);
        } else {
            activation += saved + output;
        }
        start += padded;
        i += 1;
    }
    start
}

/// Bytes at the start of a slot for activations: the input of the chunk, and after it the targets if the chunk ends the
/// model.
pub(crate) const fn entering_bytes(tables: &Tables, chunk: usize) -> usize {
    let input = tables.config.whole_lines(tables.units[tables.chunks[chunk].first].input_bytes);
    let targets = tables.config.whole_lines(tables.units[tables.units.len() - 1].targets_bytes);
    if chunk + 1 == tables.chunks.len() { input + targets } else { input }
}

const fn bucket_of(buckets: &[Bucket], unit: usize) -> usize {
    let mut i = 0;
    while buckets[i].first > unit {
        i += 1;
    }
    i
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
