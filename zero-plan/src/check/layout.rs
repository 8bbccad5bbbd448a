//! Check of a layout: every parameter has one owner, everything fits, no two things overlap. Shares no code with what
//! lays out, and asks for no more than it must: room to spare is no fault.

use super::{Broken, slots};
use crate::config::{Config, Gather};
use crate::layout::{Bucket, Home, Kind, Memory, Placement};
use crate::unit::{ALIGNMENT, Unit, round_up};

/// The first rule that a layout breaks.
pub const fn check_layout(
    config: &Config,
    units: &[Unit],
    placements: &[Placement],
    buckets: &[Bucket],
    memory: &Memory,
) -> Broken {
    rules! { placements.len() == units.len() => "another number of placements than of units", }
    if let Some(rule) = check_units(config, units, placements, buckets) {
        return Some(rule);
    }
    if let Some(rule) = check_buckets(config, units, placements, buckets, memory) {
        return Some(rule);
    }
    if let Some(rule) = check_sizes(config, units, placements, memory) {
        return Some(rule);
    }
    check_regions(config, memory)
}

/// Whether an offset in elements lies on a cache line.
const fn on_line(offset: usize) -> bool {
    offset.is_multiple_of(ALIGNMENT)
}

/// Flat buffers and activations follow one another, and ties lead to an owner.
const fn check_units(config: &Config, units: &[Unit], placements: &[Placement], buckets: &[Bucket]) -> Broken {
    let (mut i, mut start, mut activation) = (0, 0, 0);
    while i < units.len() {
        let (unit, at) = (&units[i], &placements[i]);
        rules! {
            at.start == start => "flat buffers leave a gap or overlap",
            at.padded >= unit.params && at.padded.is_multiple_of(config.ranks * ALIGNMENT) =>
                "a flat buffer that equal shards of whole cache lines do not cover",
            at.saved >= activation && at.output >= at.saved + unit.saved => "activations overlap",
            on_line(at.saved) && on_line(at.output) => "activations that do not start on a cache line",
            unit.source <= i && !units[unit.source].is_tied(unit.source) => "a tie that is not to an owner before it",
            unit.takes <= units[unit.source].params => "a layer that takes more parameters than their owner has",
            at.bucket < buckets.len() && buckets[at.bucket].first <= i && i <= buckets[at.bucket].last =>
                "a unit outside its bucket",
        }
        start += at.padded;
        activation = at.output + unit.output;
        i += 1;
    }
    None
}

/// Buckets tile the units from the last to the first, and share staging only where they take turns.
const fn check_buckets(
    config: &Config,
    units: &[Unit],
    placements: &[Placement],
    buckets: &[Bucket],
    memory: &Memory,
) -> Broken {
    let (mut i, mut end) = (0, units.len());
    while i < buckets.len() {
        let bucket = &buckets[i];
        rules! {
            bucket.first <= bucket.last && bucket.last + 1 == end => "buckets leave a gap or overlap",
            bucket.start == placements[bucket.first].start => "a bucket that starts elsewhere than its first unit",
            bucket.start + bucket.elements == placements[bucket.last].start + placements[bucket.last].padded =>
                "a bucket that ends elsewhere than its last unit",
            bucket.staging + bucket.elements <= memory.region(Kind::Gradients).elements => "staging out of bounds",
            on_line(bucket.staging) => "staging that does not start on a cache line",
            bucket.slot.is_some() == (config.shards_gradients() && bucket.elements > 0) =>
                "a staging slot below stage 2, or none from there on",
        }
        let mut other = 0;
        while other < i {
            rules! { may_coexist(bucket, &buckets[other]) => "buckets that overlap in staging and do not take turns", }
            other += 1;
        }
        end = bucket.first;
        i += 1;
    }
    rules! { end == 0 => "units without a bucket", }
    None
}

/// Whether two buckets lie apart in staging, or share a slot, in which a claim waits for the bucket before.
const fn may_coexist(a: &Bucket, b: &Bucket) -> bool {
    match (a.slot, b.slot) {
        (Some(a_slot), Some(b_slot)) if a_slot == b_slot => a.staging == b.staging,
        _ => a.staging + a.elements <= b.staging || b.staging + b.elements <= a.staging,
    }
}

/// Each region holds what is kept in it.
const fn check_sizes(config: &Config, units: &[Unit], placements: &[Placement], memory: &Memory) -> Broken {
    // What backward has the gradients of a unit's input and output in, and what the optimizer has its moments in.
    let boundary = memory.region(Kind::ActivationGradients).elements / 2;
    let moments = memory.region(Kind::Optimizer).elements / 2;
    let mut i = 0;
    while i < units.len() {
        let unit = &units[i];
        rules! {
            placements[i].padded <= memory.slot => "a flat buffer that does not fit a slot",
            round_up(unit.input, ALIGNMENT) <= boundary && round_up(unit.output, ALIGNMENT) <= boundary =>
                "gradients of activations that do not fit their region",
            unit.workspace <= memory.region(Kind::Workspace).elements => "a workspace that does not fit its region",
        }
        i += 1;
    }
    let last = units.len() - 1;
    let flat = placements[last].start + placements[last].padded;
    let shard = flat / config.ranks;
    let copies = config.shards_parameters() && matches!(config.transport.gather(), Gather::Copied);
    rules! {
        memory.region(Kind::Parameters).elements >= if config.shards_parameters() { shard } else { flat } =>
            "parameters that do not fit their region",
        !copies || memory.region(Kind::Gathered).elements >= slots(config, placements) * memory.slot =>
            "slots that do not fit their region",
        config.reduces_in_place() || memory.region(Kind::Reduced).elements >= shard =>
            "reduced gradients that do not fit their region",
        moments >= if config.shards_optimizer() { shard } else { flat } => "optimizer state that does not fit its region",
        memory.region(Kind::Activations).elements >= placements[last].output + units[last].output =>
            "activations that do not fit their region",
        memory.region(Kind::Batch).elements >= round_up(units[0].input, ALIGNMENT) + config.tokens() =>
            "a batch that does not fit its region",
    }
    None
}

/// Regions of one home follow one another and end where the home does, and peers can reach what they read.
const fn check_regions(config: &Config, memory: &Memory) -> Broken {
    let (mut private, mut shared, mut common, mut i) = (0, 0, 0, 0);
    while i < memory.regions.len() {
        let region = &memory.regions[i];
        let (end, size) = match region.home {
            Home::Private => (&mut private, region.elements),
            Home::Shared => (&mut shared, region.elements),
            Home::Common => (&mut common, region.elements * config.ranks),
        };
        rules! {
            region.kind as usize == i => "regions in another order than their kinds",
            region.offset >= *end => "regions overlap",
            on_line(region.offset) => "a region that does not start on a cache line",
            suits(config, region.kind, region.home) => "a region where those who read it cannot, or need not",
        }
        *end = region.offset + size;
        i += 1;
    }
    rules! {
        private <= memory.private && shared <= memory.shared && common <= memory.common =>
            "a region beyond the end of the arena",
    }
    None
}

/// Whether a region may lie there. Mapped gathers are views of shards that lie contiguous; peers read local gradients,
/// updated shards of replicas and, at stage 0, reduced shards.
const fn suits(config: &Config, kind: Kind, home: Home) -> bool {
    let is_mapped = matches!(kind, Kind::Parameters)
        && config.shards_parameters()
        && matches!(config.transport.gather(), Gather::Mapped);
    let is_read = match kind {
        Kind::Parameters => config.shards_optimizer(),
        Kind::Gradients => true,
        Kind::Reduced => !config.shards_optimizer(),
        _ => false,
    };
    match home {
        Home::Common => is_mapped,
        Home::Shared => is_read && !is_mapped,
        Home::Private => !is_mapped && (!is_read || config.ranks == 1),
    }
}
