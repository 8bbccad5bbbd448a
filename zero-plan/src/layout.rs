//! Layout: where everything lies. Sizes in, constant offsets out. Knows nothing of the order of a step.

use crate::config::{Config, Gather};
use crate::unit::{ALIGNMENT, ELEMENT_BYTES, Unit, round_up};

/// Staging slots for gradients at stages 2 and 3: one bucket is filled while the one before it is reduced.
pub const STAGING_SLOTS: usize = 2;

/// Where a unit lies in the regions that hold something of every unit. Offsets and sizes in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Start of its flat buffer when all flat buffers lie one behind the other.
    pub start: usize,
    /// Size of its flat buffer.
    pub padded: usize,
    /// Start of what it saves for backward, in the activations.
    pub saved: usize,
    /// Start of its output, in the activations.
    pub output: usize,
    /// The bucket that it belongs to. Its gradients travel in the bucket of its `source`.
    pub bucket: usize,
}

impl Placement {
    /// Nothing, nowhere: what a table holds before it is filled.
    pub(crate) const NONE: Self = Self { start: 0, padded: 0, saved: 0, output: 0, bucket: 0 };

    /// Elements of one rank's shard of its flat buffer.
    pub const fn shard(&self, ranks: usize) -> usize {
        self.padded / ranks
    }
}

/// Consecutive units whose gradients travel in one collective, in the order of backward: bucket 0 holds the last units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Its first unit in the order of forward, the last to get its gradient.
    pub first: usize,
    /// Its last unit in the order of forward.
    pub last: usize,
    /// Start of its first unit's flat buffer.
    pub start: usize,
    /// Sum of its padded flat buffers.
    pub elements: usize,
    /// Start of its local gradients in their region.
    pub staging: usize,
    /// The staging slot that it shares with other buckets, where they do share.
    pub slot: Option<usize>,
}

/// What a region of the arena holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Parameters: all of them, or the rank's shard of each unit.
    Parameters,
    /// Slots for gathered parameters.
    Gathered,
    /// Gradients of this rank's own micro-batch: of every unit, or of the buckets in flight.
    Gradients,
    /// The rank's shard of the gradients, summed over ranks and micro-batches.
    Reduced,
    /// AdamW's first and second moments.
    Optimizer,
    /// Outputs of the units, and what they save for backward.
    Activations,
    /// Gradients of the activations on both sides of the unit in backward.
    ActivationGradients,
    /// Scratch of one call.
    Workspace,
    /// Inputs and targets of one micro-batch.
    Batch,
}

impl Kind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Kind; 9] = [
        Kind::Parameters,
        Kind::Gathered,
        Kind::Gradients,
        Kind::Reduced,
        Kind::Optimizer,
        Kind::Activations,
        Kind::ActivationGradients,
        Kind::Workspace,
        Kind::Batch,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Parameters => "parameters",
            Kind::Gathered => "gathered parameters",
            Kind::Gradients => "gradients",
            Kind::Reduced => "reduced gradients",
            Kind::Optimizer => "optimizer state",
            Kind::Activations => "activations",
            Kind::ActivationGradients => "activation gradients",
            Kind::Workspace => "workspace",
            Kind::Batch => "batch",
        }
    }
}

/// Which mapping a region lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// The rank's own memory.
    Private,
    /// The rank's part of the memory that its peers can read.
    Shared,
    /// The memory in which the shards of all ranks lie contiguous, unit by unit.
    Common,
}

/// A part of the arena. Offset and size in elements; the offset counts from the start of its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// What it holds.
    pub kind: Kind,
    /// Where it lies.
    pub home: Home,
    /// Start within its home.
    pub offset: usize,
    /// The rank's share.
    pub elements: usize,
}

/// The arena of one rank: a constant of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// All regions, in the order of [`Kind::ALL`].
    pub regions: [Region; Kind::ALL.len()],
    /// Elements of [`Home::Private`].
    pub private: usize,
    /// Elements of this rank's [`Home::Shared`].
    pub shared: usize,
    /// Elements of [`Home::Common`], of all ranks together.
    pub common: usize,
    /// Elements of one slot for gathered parameters.
    pub slot: usize,
}

impl Memory {
    /// The arena of one rank under `config`.
    pub const fn of(config: &Config, units: &[Unit]) -> Self {
        let sizes = Sizes::of(config, units);
        let mut memory = Memory {
            regions: [Region { kind: Kind::Batch, home: Home::Private, offset: 0, elements: 0 }; Kind::ALL.len()],
            private: 0,
            shared: 0,
            common: 0,
            slot: sizes.flat_max,
        };
        let mut i = 0;
        while i < Kind::ALL.len() {
            let kind = Kind::ALL[i];
            let home = home(config, kind);
            let elements = round_up(sizes.elements(config, kind), ALIGNMENT);
            let end = match home {
                Home::Private => &mut memory.private,
                Home::Shared => &mut memory.shared,
                Home::Common => &mut memory.common,
            };
            memory.regions[i] = Region { kind, home, offset: *end, elements };
            *end += match home {
                Home::Common => elements * config.ranks,
                Home::Private | Home::Shared => elements,
            };
            i += 1;
        }
        memory
    }

    /// The region of a kind.
    pub const fn region(&self, kind: Kind) -> Region {
        self.regions[kind as usize]
    }

    /// Bytes of one rank's arena, its share of what all ranks hold in common included.
    pub const fn bytes_per_rank(&self) -> usize {
        let (mut elements, mut i) = (0, 0);
        while i < self.regions.len() {
            elements += self.regions[i].elements;
            i += 1;
        }
        elements * ELEMENT_BYTES
    }
}

/// What only one rank reads is private to it; what peers read must lie where they can.
const fn home(config: &Config, kind: Kind) -> Home {
    let alone = config.ranks == 1;
    match kind {
        Kind::Parameters if config.shards_parameters() => match config.transport.gather() {
            Gather::Mapped => Home::Common,
            Gather::Copied => Home::Shared,
        },
        // Peers read this rank's updated shard out of its replica.
        Kind::Parameters if config.shards_optimizer() && !alone => Home::Shared,
        Kind::Gradients if !alone => Home::Shared,
        // At stage 0 peers read the reduced shard: the second half of an all-reduce.
        Kind::Reduced if !config.shards_optimizer() && !alone => Home::Shared,
        _ => Home::Private,
    }
}

/// The sums and maxima over units that region sizes come from, in elements.
struct Sizes {
    flat: usize,
    flat_max: usize,
    bucket_max: usize,
    /// Staging slots that buckets take in turn (stages 2 and 3).
    ring_slots: usize,
    /// Buckets with a tied owner: its gradients wait for all contributions, in a slot outside the ring.
    tied_slots: usize,
    gather_slots: usize,
    activations: usize,
    boundary_max: usize,
    workspace_max: usize,
    batch: usize,
}

impl Sizes {
    const fn of(config: &Config, units: &[Unit]) -> Self {
        let mut sizes = Sizes {
            flat: 0,
            flat_max: 0,
            bucket_max: 0,
            ring_slots: 0,
            tied_slots: 0,
            gather_slots: 0,
            activations: 0,
            boundary_max: 0,
            workspace_max: 0,
            batch: round_up(units[0].input, ALIGNMENT) + config.tokens(),
        };
        let (mut i, mut gathered, mut end) = (0, 0, units.len());
        while i < units.len() {
            let unit = &units[i];
            let padded = unit.padded(config.ranks);
            sizes.flat += padded;
            sizes.flat_max = max(sizes.flat_max, padded);
            gathered += (padded > 0) as usize;
            sizes.activations += round_up(unit.saved, ALIGNMENT) + round_up(unit.output, ALIGNMENT);
            sizes.boundary_max = max(sizes.boundary_max, round_up(max(unit.input, unit.output), ALIGNMENT));
            sizes.workspace_max = max(sizes.workspace_max, unit.workspace);
            i += 1;
        }
        // No more slots than units: a unit is never gathered twice at one time.
        sizes.gather_slots = min(config.prefetch + 1, gathered);
        while end > 0 {
            let bucket = Bucket::ending_at(config, units, end - 1);
            sizes.bucket_max = max(sizes.bucket_max, bucket.elements);
            // A bucket without parameters has nothing to stage.
            let staged = (bucket.elements > 0) as usize;
            if bucket.has_tied(units) {
                sizes.tied_slots += staged;
            } else {
                sizes.ring_slots = min(sizes.ring_slots + staged, STAGING_SLOTS);
            }
            end = bucket.first;
        }
        sizes
    }

    const fn elements(&self, config: &Config, kind: Kind) -> usize {
        let shard = self.flat / config.ranks;
        match kind {
            Kind::Parameters if config.shards_parameters() => shard,
            Kind::Parameters => self.flat,
            Kind::Gathered if config.shards_parameters() => match config.transport.gather() {
                Gather::Copied => self.gather_slots * self.flat_max,
                Gather::Mapped => 0,
            },
            Kind::Gathered => 0,
            Kind::Gradients if config.shards_gradients() => (self.ring_slots + self.tied_slots) * self.bucket_max,
            Kind::Gradients => self.flat,
            Kind::Reduced if config.reduces_in_place() => 0,
            Kind::Reduced => shard,
            Kind::Optimizer if config.shards_optimizer() => 2 * shard,
            Kind::Optimizer => 2 * self.flat,
            Kind::Activations => self.activations,
            Kind::ActivationGradients => 2 * self.boundary_max,
            Kind::Workspace => self.workspace_max,
            Kind::Batch => self.batch,
        }
    }
}

impl Bucket {
    /// Nothing, nowhere: what a table holds before it is filled.
    pub(crate) const NONE: Self = Self { first: 0, last: 0, start: 0, elements: 0, staging: 0, slot: None };

    /// The bucket whose last unit is `last`: units before it join while all fit in `bucket_bytes`.
    const fn ending_at(config: &Config, units: &[Unit], last: usize) -> Self {
        let mut first = last;
        let mut elements = units[last].padded(config.ranks);
        while first > 0 {
            let joined = elements + units[first - 1].padded(config.ranks);
            if joined * ELEMENT_BYTES > config.bucket_bytes && elements > 0 {
                break;
            }
            elements = joined;
            first -= 1;
        }
        Bucket { first, last, elements, ..Self::NONE }
    }

    /// Whether a tied unit outside or inside adds to the gradients of this bucket.
    const fn has_tied(&self, units: &[Unit]) -> bool {
        let mut i = 0;
        while i < units.len() {
            let source = units[i].source;
            if source != i && source >= self.first && source <= self.last {
                return true;
            }
            i += 1;
        }
        false
    }
}

/// Number of buckets under `config`.
pub const fn bucket_count(config: &Config, units: &[Unit]) -> usize {
    let (mut count, mut end) = (0, units.len());
    while end > 0 {
        end = Bucket::ending_at(config, units, end - 1).first;
        count += 1;
    }
    count
}

/// Fills in the buckets, in the order of backward. `out` has [`bucket_count`] entries.
pub const fn fill_buckets(config: &Config, units: &[Unit], out: &mut [Bucket]) {
    let sizes = Sizes::of(config, units);
    let (mut i, mut ring, mut tied) = (0, 0, 0);
    let (mut end, mut start) = (units.len(), sizes.flat);
    while i < out.len() {
        let mut bucket = Bucket::ending_at(config, units, end - 1);
        start -= bucket.elements;
        bucket.start = start;
        bucket.staging = start;
        if config.shards_gradients() && bucket.elements > 0 {
            let slot = if bucket.has_tied(units) {
                tied += 1;
                sizes.ring_slots + tied - 1
            } else {
                ring += 1;
                (ring - 1) % sizes.ring_slots
            };
            bucket.slot = Some(slot);
            bucket.staging = slot * sizes.bucket_max;
        }
        out[i] = bucket;
        end = bucket.first;
        i += 1;
    }
}

/// Fills in the placement of every unit. `out` has as many entries as there are units.
pub const fn fill_placements(config: &Config, units: &[Unit], buckets: &[Bucket], out: &mut [Placement]) {
    let (mut i, mut start, mut activation) = (0, 0, 0);
    while i < units.len() {
        let unit = &units[i];
        let padded = unit.padded(config.ranks);
        let saved = activation;
        let output = saved + round_up(unit.saved, ALIGNMENT);
        out[i] = Placement { start, padded, saved, output, bucket: bucket_of(buckets, i) };
        start += padded;
        activation = output + round_up(unit.output, ALIGNMENT);
        i += 1;
    }
}

const fn bucket_of(buckets: &[Bucket], unit: usize) -> usize {
    let mut i = 0;
    while buckets[i].first > unit {
        i += 1;
    }
    i
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
