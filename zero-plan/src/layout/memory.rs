//! Memory: the arena of a rank as regions at constant offsets, and which of them peers can read.

use serde::{Serialize, Serializer};

use super::{Decoding, RegionSizes, Tables};
use crate::config::{Config, Gather, TierKind, Width};
use crate::lines::{BLOCK_BYTES, round_up};
use crate::mesh::Axis;

/// The contents of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// Parameters: all of the pipeline stage, or the rank's shard of each unit.
    Parameters,
    /// Slots for parameters that are gathered, or converted for computation.
    Gathered,
    /// Gradients of this rank's own micro-batches: of every unit, or of the buckets in flight.
    Gradients,
    /// Gradients of the unit in backward, before they are narrowed.
    UnitGradients,
    /// The rank's shard of the gradients of the buckets in flight, summed over its replica.
    Partial,
    /// The rank's shard of the gradients, summed over ranks and micro-batches.
    Reduced,
    /// Parameters as the optimizer updates them.
    Master,
    /// AdamW's first and second moments.
    Optimizer,
    /// A copy of what the rank writes to a checkpoint.
    Snapshot,
    /// For the micro-batches in flight, inputs and outputs of the units and the values that they save for backward.
    /// During decoding, the inputs, outputs and saved values of units, and the caches of earlier tokens.
    Activations,
    /// The values that a recomputed unit saves, from its second forward to its backward.
    Recomputed,
    /// Gradients of the activations on both sides of the unit in backward.
    ActivationGradients,
    /// Activations and their gradients on their way to another pipeline stage.
    Outgoing,
    /// Scratch of one call.
    Workspace,
    /// Sums over the ranks of a host, on their way to other hosts.
    Subtotals,
    /// Bytes carried here from other ranks, to be summed or converted.
    Inbox,
    /// Pieces of the parameters that the optimizer updates, if they are kept in a tier.
    MasterWindow,
    /// Pieces of both moments, if they are kept in a tier.
    OptimizerWindow,
    /// The sums of gradients of every unit, if they are kept in a tier. Buckets take turns with slots of
    /// [`Kind::Reduced`] then.
    Sums,
    /// Pieces of these sums.
    SumsWindow,
    /// Pieces of parameters, if they are kept in a tier.
    ParametersWindow,
    /// Shards of parameters that were fetched from a tier, to be gathered.
    Shards,
    /// Outputs of units and the values that they save, if these are kept in a tier. Units take turns with places in
    /// [`Kind::Activations`] then.
    StoredActivations,
    /// The settings and the report of a step, if the host updates parameters: it reads them there.
    StepWords,
    /// Bytes on their way between a disk and a GPU, in the memory of the host.
    Relay,
    /// Copies of the parameters that the rank publishes.
    Published,
    /// What the rank offers of its parameters, on its way to a copy in the memory of the host.
    PublishedWindow,
    /// Newer parameters of a worker, until they replace those in use.
    Staged,
}

impl Kind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Kind; 28] = [
        Kind::Parameters,
        Kind::Gathered,
        Kind::Gradients,
        Kind::UnitGradients,
        Kind::Partial,
        Kind::Reduced,
        Kind::Master,
        Kind::Optimizer,
        Kind::Snapshot,
        Kind::Activations,
        Kind::Recomputed,
        Kind::ActivationGradients,
        Kind::Outgoing,
        Kind::Workspace,
        Kind::Subtotals,
        Kind::Inbox,
        Kind::MasterWindow,
        Kind::OptimizerWindow,
        Kind::Sums,
        Kind::SumsWindow,
        Kind::ParametersWindow,
        Kind::Shards,
        Kind::StoredActivations,
        Kind::StepWords,
        Kind::Relay,
        Kind::Published,
        Kind::PublishedWindow,
        Kind::Staged,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Parameters => "parameters",
            Kind::Gathered => "gathered parameters",
            Kind::Gradients => "gradients",
            Kind::UnitGradients => "unit gradients",
            Kind::Partial => "partial sums",
            Kind::Reduced => "reduced gradients",
            Kind::Master => "master parameters",
            Kind::Optimizer => "optimizer state",
            Kind::Snapshot => "snapshot",
            Kind::Activations => "activations",
            Kind::Recomputed => "recomputed activations",
            Kind::ActivationGradients => "activation gradients",
            Kind::Outgoing => "outgoing",
            Kind::Workspace => "workspace",
            Kind::Subtotals => "sums of the host",
            Kind::Inbox => "inbox",
            Kind::MasterWindow => "master window",
            Kind::OptimizerWindow => "optimizer window",
            Kind::Sums => "sums of gradients",
            Kind::SumsWindow => "window of sums",
            Kind::ParametersWindow => "parameter window",
            Kind::Shards => "fetched shards",
            Kind::StoredActivations => "stored activations",
            Kind::StepWords => "step words",
            Kind::Relay => "relay of the disk",
            Kind::Published => "published parameters",
            Kind::PublishedWindow => "window of published",
            Kind::Staged => "staged parameters",
        }
    }

    /// The width of its numbers; `None` if it holds numbers of several widths.
    pub const fn width(self, config: &Config) -> Option<Width> {
        match self {
            Kind::Parameters | Kind::ParametersWindow | Kind::Shards | Kind::Staged => Some(config.precision.params),
            Kind::Gathered => Some(config.precision.compute),
            Kind::Gradients | Kind::Partial | Kind::Reduced | Kind::Sums | Kind::SumsWindow => {
                Some(config.precision.reduce)
            }
            Kind::UnitGradients | Kind::Subtotals => Some(Width::F32),
            Kind::Master | Kind::MasterWindow => Some(config.precision.master),
            Kind::Optimizer | Kind::OptimizerWindow => Some(config.precision.moments),
            Kind::Snapshot | Kind::Activations | Kind::Recomputed | Kind::StoredActivations => None,
            Kind::ActivationGradients | Kind::Outgoing | Kind::Workspace | Kind::Inbox => None,
            Kind::StepWords | Kind::Relay => None,
            Kind::Published | Kind::PublishedWindow => Some(config.publish.dtype),
        }
    }

    /// Whether a tier reads and writes it, in whole blocks.
    const fn is_window(self, config: &Config) -> bool {
        match self {
            Kind::MasterWindow | Kind::OptimizerWindow | Kind::SumsWindow => true,
            Kind::ParametersWindow | Kind::Shards | Kind::Relay => true,
            Kind::Reduced => config.offloads_gradients(),
            Kind::Activations => config.offloads_activations(),
            Kind::Published => config.stores_published(),
            _ => false,
        }
    }

    /// Whether only training uses it.
    pub(crate) const fn is_of_training(self) -> bool {
        matches!(
            self,
            Kind::Gradients | Kind::UnitGradients | Kind::Reduced | Kind::Optimizer | Kind::ActivationGradients
        )
    }

    /// Bytes of `len` elements; `len` itself if it has no single width.
    pub const fn bytes(self, config: &Config, len: usize) -> usize {
        match self.width(config) {
            Some(width) => len * width.bytes(),
            None => len,
        }
    }
}

/// The mapping or the tier that a region lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Home {
    /// The rank's own memory.
    Private,
    /// The rank's part of the memory that its peers can read.
    Shared,
    /// Memory that ranks along `zero` have in common, in which their shards lie contiguous, unit by unit.
    Common,
    /// The memory of the rank's host, if its device has a memory of its own.
    Host,
    /// The rank's file.
    Disk,
}

impl Home {
    /// All homes: the lengths of an arena's mappings have this order.
    pub const ALL: [Home; 5] = [Home::Private, Home::Shared, Home::Common, Home::Host, Home::Disk];

    /// Whether only the rank itself can reach it.
    pub const fn is_private(self) -> bool {
        matches!(self, Home::Private) || self.is_tier()
    }

    /// Whether it lies outside the memory of the device, so that its bytes are worked on in a window.
    pub const fn is_tier(self) -> bool {
        matches!(self, Home::Host | Home::Disk)
    }

    /// Whether ranks along `zero` share it.
    pub const fn is_common(self) -> bool {
        matches!(self, Home::Common)
    }

    /// How many ranks share it. Each of its regions has a part for each of them.
    pub const fn holders(self, config: &Config) -> usize {
        if self.is_common() { config.in_common() } else { 1 }
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Home::Private => "private",
            Home::Shared => "shared",
            Home::Common => "common",
            Home::Host => "host",
            Home::Disk => "disk",
        }
    }
}

/// A part of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Region {
    /// Its contents.
    pub kind: Kind,
    /// The mapping or the tier that it lies in.
    pub home: Home,
    /// Start within its home.
    pub offset_bytes: usize,
    /// The rank's share, in bytes.
    pub bytes: usize,
}

/// The arena of a rank of one pipeline stage: a constant of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Memory {
    /// All regions, in the order of [`Kind::ALL`].
    #[serde(serialize_with = "without_what_is_empty")]
    pub regions: [Region; Kind::ALL.len()],
    /// Bytes of each home, in the order of [`Home::ALL`]; a shared home counts the bytes of all ranks that share it.
    #[serde(flatten, serialize_with = "by_home")]
    pub home_bytes: [usize; Home::ALL.len()],
    /// Elements of one slot for gathered parameters.
    pub gathered_slot: usize,
    /// Elements of one state in a slot of the window.
    #[serde(skip_serializing_if = "is_zero")]
    pub window_slot: usize,
    /// Elements of a slot for the sums of a bucket, if sums are kept in a tier.
    #[serde(skip_serializing_if = "is_zero")]
    pub sum_slot: usize,
    /// Elements of a slot for a fetched shard, if parameters are kept in a tier.
    #[serde(skip_serializing_if = "is_zero")]
    pub shard_slot: usize,
    /// Elements of the largest bucket.
    #[serde(skip)]
    pub bucket_slot: usize,
    /// Bytes of one slot for activations: of one chunk of one micro-batch.
    pub activation_slot_bytes: usize,
    /// The region of activations in a decoding walk.
    pub decoding: Decoding,
    /// Bytes of one slot for outgoing activations. The slots for gradients of activations follow these.
    pub outgoing_slot_bytes: usize,
    /// Bytes of one slot for outgoing gradients of activations.
    pub returning_slot_bytes: usize,
}

impl Memory {
    /// An empty arena, for a table that is not yet filled.
    pub(crate) const NONE: Self = Self {
        regions: [Region { kind: Kind::Parameters, home: Home::Private, offset_bytes: 0, bytes: 0 }; Kind::ALL.len()],
        home_bytes: [0; Home::ALL.len()],
        gathered_slot: 0,
        window_slot: 0,
        sum_slot: 0,
        shard_slot: 0,
        bucket_slot: 0,
        activation_slot_bytes: 0,
        decoding: Decoding::NONE,
        outgoing_slot_bytes: 0,
        returning_slot_bytes: 0,
    };

    /// The arena of a rank of pipeline stage `pipeline`. Reads only the units and chunks of `tables`.
    pub const fn of(tables: &Tables, pipeline: usize) -> Self {
        let sizes = RegionSizes::of(tables, pipeline);
        let mut memory = Memory {
            gathered_slot: sizes.flat_max,
            window_slot: tables.window_slot(pipeline),
            sum_slot: if tables.config.offloads_gradients() { sizes.sum_slot(tables) } else { 0 },
            shard_slot: sizes.shard_slot(tables),
            bucket_slot: sizes.bucket_max,
            activation_slot_bytes: sizes.activation_slot_bytes,
            decoding: sizes.decoding,
            outgoing_slot_bytes: sizes.outgoing_bytes_max,
            returning_slot_bytes: sizes.incoming_bytes_max,
            ..Self::NONE
        };
        let mut i = 0;
        while i < Kind::ALL.len() {
            let kind = Kind::ALL[i];
            let home = home(tables, kind);
            let bytes = tables.config.whole_lines(kind.bytes(tables.config, sizes.len(tables, kind)));
            let before = memory.bytes_of(home);
            let is_in_blocks = kind.is_window(tables.config) && bytes > 0;
            let offset_bytes = if is_in_blocks { round_up(before, BLOCK_BYTES) } else { before };
            memory.regions[i] = Region { kind, home, offset_bytes, bytes };
            memory.home_bytes[home as usize] = offset_bytes + bytes * home.holders(tables.config);
            i += 1;
        }
        memory
    }

    /// The region of a kind.
    pub const fn region(&self, kind: Kind) -> Region {
        self.regions[kind as usize]
    }

    /// Bytes of a home; a shared home counts the bytes of all ranks that share it.
    pub const fn bytes_of(&self, home: Home) -> usize {
        self.home_bytes[home as usize]
    }

    /// Bytes of one rank's arena, including its share of common memory. Tiers are not part of an arena.
    pub const fn bytes_per_rank(&self) -> usize {
        let (mut bytes, mut i) = (0, 0);
        while i < self.regions.len() {
            bytes += if self.regions[i].home.is_tier() { 0 } else { self.regions[i].bytes };
            i += 1;
        }
        bytes
    }
}

/// Serializes regions, without empty ones of the kinds that were added later: plans without them keep their old hash.
fn without_what_is_empty<S: Serializer>(regions: &[Region], serializer: S) -> Result<S::Ok, S::Error> {
    let is_there = |region: &&Region| region.kind < Kind::Subtotals || region.bytes > 0;
    serializer.collect_seq(regions.iter().filter(is_there))
}

/// Serializes the bytes of homes by their names. A home that was added later is left out if it is empty, so that plans
/// without it keep their hash.
fn by_home<S: Serializer>(bytes: &[usize; Home::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    let named = Home::ALL.into_iter().zip(bytes).map(|(home, bytes)| (format!("{}_bytes", home.name()), bytes));
    let is_there = |(index, (_, bytes)): &(usize, (String, &usize))| *index <= Home::Common as usize || **bytes > 0;
    serializer.collect_map(named.enumerate().filter(is_there).map(|(_, entry)| entry))
}

/// Whether a number is 0: plans without such a number keep their old hash.
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The home of a region: its tier, or private if only its rank reads it, otherwise where peers can read it.
const fn home(tables: &Tables, kind: Kind) -> Home {
    let config = tables.config;
    let mesh = &config.mesh;
    let tier = match kind {
        Kind::Master | Kind::Optimizer => config.offload.optimizer,
        Kind::Sums => config.offload.gradients,
        Kind::Parameters => config.offload.parameters,
        Kind::StoredActivations => config.offload.activations,
        Kind::SumsWindow | Kind::ParametersWindow | Kind::StepWords if config.updates_on_host() => {
            config.offload.optimizer
        }
        Kind::Relay if config.relays() => TierKind::Host,
        Kind::Published if config.stores_published() => TierKind::Host,
        _ => TierKind::Device,
    };
    if let Some(tier) = tier.home() {
        return tier;
    }
    if config.transport.carries() {
        return Home::Private;
    }
    let last = tables.units.len() - 1;
    let is_mirrored = tables.is_mirror(last);
    let is_shared = match kind {
        Kind::Gathered if config.shares_slots() => return Home::Common,
        Kind::Parameters if config.shards_parameters() => match config.gather() {
            Gather::Mapped => return Home::Common,
            Gather::Copied => true,
        },
        // Peers read this rank's updated shard from its replica.
        Kind::Parameters => config.shards_optimizer() && mesh.zero > 1 || is_mirrored,
        Kind::Gradients => mesh.zero > 1 || config.reduces_in_place() && (mesh.replica > 1 || is_mirrored),
        Kind::Partial => true,
        // Peers read reduced parts: the second half of an all-reduce, or the directions that replaced them.
        Kind::Reduced => {
            let is_spread = !config.shards_optimizer() || config.spreads_directions(Axis::Zero);
            is_spread && mesh.zero > 1 || mesh.replica > 1 || is_mirrored
        }
        Kind::Outgoing => true,
        Kind::Shards => config.gathers_fetched() && mesh.zero > 1,
        // Host peers convert the parameters that one of them has received for the host.
        Kind::Inbox => config.shares_gathers() && config.converts_gathers(),
        _ => false,
    };
    if is_shared { Home::Shared } else { Home::Private }
}
