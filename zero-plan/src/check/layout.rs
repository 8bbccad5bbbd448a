//! Check of a layout: every parameter has one owner, everything fits, no two things overlap. Shares no code with what
//! lays out, and asks for no more than it must: room to spare is no fault.

use super::Broken;
use crate::config::{Config, Gather};
use crate::layout::{Bucket, Home, Kind, Memory, OUTGOING_SLOTS, Tables};
use crate::unit::{ALIGNMENT, round_up};

/// The first rule that a layout breaks. `memories` has the arena of each pipeline stage.
pub const fn check_layout(tables: &Tables, memories: &[Memory]) -> Broken {
    rules! {
        tables.placements.len() == tables.units.len() => "another number of placements than of units",
        memories.len() == tables.config.mesh.pipeline => "another number of arenas than of pipeline stages",
    }
    if let Some(rule) = check_chunks(tables) {
        return Some(rule);
    }
    if let Some(rule) = check_cover(tables) {
        return Some(rule);
    }
    let mut stage = 0;
    while stage < memories.len() {
        let memory = &memories[stage];
        if let Some(rule) = check_units(tables, memory, stage) {
            return Some(rule);
        }
        if let Some(rule) = check_buckets(tables, memory, stage) {
            return Some(rule);
        }
        if let Some(rule) = check_regions(tables, memory) {
            return Some(rule);
        }
        stage += 1;
    }
    None
}

/// Whether an offset in elements lies on a cache line.
const fn on_line(offset: usize) -> bool {
    offset.is_multiple_of(ALIGNMENT)
}

/// Chunks tile the units, and every unit knows its own.
const fn check_chunks(tables: &Tables) -> Broken {
    rules! { tables.chunks.len() == tables.config.chunks() => "another number of chunks than asked for", }
    let (mut chunk, mut end) = (0, 0);
    while chunk < tables.chunks.len() {
        rules! {
            tables.chunks[chunk].first == end && tables.chunks[chunk].end > end => "chunks leave a gap or overlap",
            tables.chunks[chunk].end <= tables.units.len() => "a chunk of units that are not there",
        }
        let mut unit = end;
        end = tables.chunks[chunk].end;
        while unit < end {
            let at = &tables.placements[unit];
            rules! {
                at.chunk == chunk && at.stage == chunk % tables.config.mesh.pipeline => "a unit outside its chunk",
            }
            unit += 1;
        }
        chunk += 1;
    }
    rules! { end == tables.units.len() => "units without a chunk", }
    None
}

/// The units of a stage: flat buffers follow one another, activations lie apart, everything fits its region.
const fn check_units(tables: &Tables, memory: &Memory, stage: usize) -> Broken {
    let config = tables.config;
    let (mut start, mut activation, mut last_chunk) = (0, 0, usize::MAX);
    let (mut held, mut owned, mut holders, mut chunk) = (0, 0, 0, stage);
    while chunk < tables.chunks.len() {
        let mut i = tables.chunks[chunk].first;
        while i < tables.chunks[chunk].end {
            let (unit, at) = (&tables.units[i], &tables.placements[i]);
            let is_tied = unit.is_tied(i);
            let owner = &tables.placements[unit.source];
            if chunk != last_chunk {
                activation = round_up(unit.input, ALIGNMENT);
                if chunk + 1 == tables.chunks.len() {
                    activation += config.tokens() * tables.units[tables.units.len() - 1].target_width;
                }
                last_chunk = chunk;
            }
            rules! {
                at.start == start => "flat buffers leave a gap or overlap",
                at.padded >= unit.params && at.padded.is_multiple_of(config.mesh.data_ranks() * ALIGNMENT) =>
                    "a flat buffer that equal parts of whole cache lines do not cover",
                unit.source <= i && !tables.units[unit.source].is_tied(unit.source) =>
                    "a tie that is not to an owner before it",
                !is_tied || i + 1 == tables.units.len() && unit.params == 0 && at.padded == owner.padded =>
                    "a tied unit that is not the last, or has parameters of its own",
                unit.takes <= tables.units[unit.source].params => "a layer that takes more parameters than their owner has",
                at.holds == (at.padded > 0 && (!is_tied || owner.stage != stage)) =>
                    "parameters that lie nowhere, or twice",
            }
            let recomputed = config.recomputes(tables.units, i);
            let leaves = i + 1 == tables.chunks[chunk].end && i + 1 < tables.units.len();
            let (saved, output) = (round_up(unit.saved, ALIGNMENT), round_up(unit.output, ALIGNMENT));
            if recomputed {
                rules! {
                    on_line(at.saved) && at.saved + saved + output <= memory.region(Kind::Recomputed).elements =>
                        "recomputed activations that do not fit their region",
                }
            } else {
                rules! { at.saved >= activation && on_line(at.saved) => "activations overlap", }
                activation = at.saved + unit.saved;
            }
            if leaves {
                rules! { memory.outgoing_slot >= output => "a result that does not fit where it leaves from", }
            } else {
                rules! { at.output >= activation && on_line(at.output) => "activations overlap", }
                activation = at.output + unit.output;
            }
            if let Some(rule) = check_fit(config, tables, memory, i) {
                return Some(rule);
            }
            start += at.padded;
            held += if at.holds { at.padded } else { 0 };
            owned += if unit.params > 0 { at.padded } else { 0 };
            holders += at.holds as usize;
            i += 1;
        }
        rules! { activation <= memory.activation_slot => "activations that do not fit their slot", }
        chunk += tables.config.mesh.pipeline;
    }
    check_states(tables, memory, stage, Totals { held, owned, gradients: start, holders })
}

/// What one unit needs of regions that units take turns in.
const fn check_fit(config: &Config, tables: &Tables, memory: &Memory, i: usize) -> Broken {
    let (unit, at) = (&tables.units[i], &tables.placements[i]);
    // What backward has the gradients of a unit's input and output in.
    let boundary = memory.region(Kind::ActivationGradients).elements / 2;
    let is_first = tables.chunks[at.chunk].first == i;
    rules! {
        !at.holds || at.padded <= memory.gathered_slot => "a flat buffer that does not fit a slot",
        round_up(unit.input, ALIGNMENT) <= boundary && round_up(unit.output, ALIGNMENT) <= boundary =>
            "gradients of activations that do not fit their region",
        unit.workspace <= memory.region(Kind::Workspace).elements => "a workspace that does not fit its region",
        !config.precision.reduce.is_narrow() || memory.region(Kind::UnitGradients).elements >= at.padded =>
            "gradients of a unit that do not fit their region",
        i == 0 || !is_first || memory.returning_slot >= unit.input => "a gradient that does not fit where it leaves from",
    }
    None
}

/// Sums over the units of a stage.
struct Totals {
    held: usize,
    owned: usize,
    gradients: usize,
    holders: usize,
}

/// Each region holds what is kept in it.
const fn check_states(tables: &Tables, memory: &Memory, stage: usize, totals: Totals) -> Broken {
    let config = tables.config;
    let zero = config.mesh.zero;
    let states = if config.shards_optimizer() { totals.owned / zero } else { totals.owned };
    let ahead = if config.shards_parameters() { config.prefetch } else { 0 };
    let slots = if ahead >= totals.holders { totals.holders } else { ahead + 1 };
    let slotted = if config.holds_parameters() { totals.held } else { slots * memory.gathered_slot };
    let partials = config.mesh.replica > 1 && !config.reduces_in_place();
    let needs_half_a_batch = tables.chunks.len() > 1 && (stage == 0 || stage + 1 == config.mesh.pipeline);
    rules! {
        !needs_half_a_batch
            || memory.region(Kind::Workspace).elements >= config.tokens() * tables.units[tables.units.len() - 1].target_width
                && memory.region(Kind::Workspace).elements >= tables.units[0].input =>
            "half a batch that does not fit the workspace",
        memory.region(Kind::Parameters).elements >= if config.shards_parameters() { totals.held / zero } else { totals.held } =>
            "parameters that do not fit their region",
        !config.uses_slots() || memory.region(Kind::Gathered).elements >= slotted => "slots that do not fit their region",
        config.reduces_in_place() || memory.region(Kind::Reduced).elements >= totals.gradients / zero =>
            "reduced gradients that do not fit their region",
        memory.region(Kind::Optimizer).elements / 2 >= states => "optimizer state that does not fit its region",
        !config.precision.has_master_copy() || memory.region(Kind::Master).elements >= states =>
            "master parameters that do not fit their region",
        memory.region(Kind::Activations).elements >= tables.activation_slots(stage) * memory.activation_slot =>
            "activations that do not fit their region",
        on_line(memory.gathered_slot) && on_line(memory.activation_slot) =>
            "a slot that does not start on a cache line",
        on_line(memory.outgoing_slot) && on_line(memory.returning_slot) =>
            "a result that does not leave from a cache line",
        memory.region(Kind::Outgoing).elements >= OUTGOING_SLOTS * (memory.outgoing_slot + memory.returning_slot) =>
            "outgoing results that do not fit their region",
    }
    let mut i = 0;
    while i < tables.buckets.len() {
        let bucket = &tables.buckets[i];
        let end = bucket.partial + bucket.elements / zero;
        rules! {
            !partials || bucket.stage != stage || end <= memory.region(Kind::Partial).elements =>
                "partial sums that do not fit their region",
        }
        i += 1;
    }
    None
}

/// Buckets of a stage lie in one chunk each, follow its units, and share staging only where they take turns.
const fn check_buckets(tables: &Tables, memory: &Memory, stage: usize) -> Broken {
    let config = tables.config;
    let mut i = 0;
    while i < tables.buckets.len() {
        let bucket = &tables.buckets[i];
        if bucket.stage == stage {
            let (first, last) = (&tables.placements[bucket.first], &tables.placements[bucket.last]);
            rules! {
                first.chunk == last.chunk && first.stage == stage => "a bucket across chunks",
                bucket.start == first.start => "a bucket that starts elsewhere than its first unit",
                bucket.start + bucket.elements == last.start + last.padded =>
                    "a bucket that ends elsewhere than its last unit",
                bucket.staging + bucket.elements <= memory.region(Kind::Gradients).elements => "staging out of bounds",
                on_line(bucket.staging) && on_line(bucket.partial) => "staging that does not start on a cache line",
                bucket.slot.is_some() == (config.shards_gradients() && bucket.elements > 0) =>
                    "a staging slot where all gradients are kept, or none where they are not",
                bucket.first == bucket.last || !tables.units[bucket.last].is_tied(bucket.last) =>
                    "a tied unit in a bucket with others",
            }
            let mut other = 0;
            while other < i {
                let before = &tables.buckets[other];
                rules! {
                    before.stage != stage || may_coexist(bucket, before) =>
                        "buckets that overlap in staging and do not take turns",
                    before.stage != stage || may_combine(bucket, before, config.mesh.zero) =>
                        "buckets that overlap in partial sums and do not take turns",
                }
                other += 1;
            }
        }
        i += 1;
    }
    None
}

/// Buckets tile the units from the last to the first, so each gradient is in one of them.
const fn check_cover(tables: &Tables) -> Broken {
    let (mut i, mut end) = (0, tables.units.len());
    while i < tables.buckets.len() {
        let bucket = &tables.buckets[i];
        rules! {
            bucket.first <= bucket.last && bucket.last + 1 == end => "buckets leave a gap or overlap",
            bucket.stage == tables.placements[bucket.first].stage => "a bucket on another pipeline stage than its units",
        }
        let mut unit = bucket.first;
        while unit <= bucket.last {
            rules! { tables.placements[unit].bucket == i => "a unit outside its bucket", }
            unit += 1;
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

/// Whether the sums of two buckets over one replica lie apart, or at one place, where a settle waits for the one before.
const fn may_combine(a: &Bucket, b: &Bucket, zero: usize) -> bool {
    a.partial == b.partial || a.partial + a.elements / zero <= b.partial || b.partial + b.elements / zero <= a.partial
}

/// Regions of one home follow one another and end where the home does, and peers can reach what they read.
const fn check_regions(tables: &Tables, memory: &Memory) -> Broken {
    let (mut private, mut shared, mut common, mut i) = (0, 0, 0, 0);
    while i < memory.regions.len() {
        let region = &memory.regions[i];
        let (end, bytes) = match region.home {
            Home::Private => (&mut private, region.bytes()),
            Home::Shared => (&mut shared, region.bytes()),
            Home::Common => (&mut common, region.bytes() * tables.config.mesh.zero),
        };
        rules! {
            region.kind as usize == i => "regions in another order than their kinds",
            region.width.bytes() == region.kind.width(tables.config).bytes() => "a region of another width than asked for",
            region.offset_bytes >= *end => "regions overlap",
            region.offset_bytes.is_multiple_of(64) => "a region that does not start on a cache line",
            suits(tables, region.kind, region.home) => "a region where those who read it cannot, or need not",
        }
        *end = region.offset_bytes + bytes;
        i += 1;
    }
    rules! {
        private <= memory.private_bytes && shared <= memory.shared_bytes && common <= memory.common_bytes =>
            "a region beyond the end of the arena",
    }
    None
}

/// Whether a region may lie there. Mapped gathers are views of shards that lie contiguous; peers read local gradients,
/// updated shards of replicas, what is on its way to another stage, and sums that an all-reduce spreads.
const fn suits(tables: &Tables, kind: Kind, home: Home) -> bool {
    let config = tables.config;
    let mesh = &config.mesh;
    let last = tables.units.len() - 1;
    let is_mirrored = tables.placements[last].holds && tables.units[last].is_tied(last);
    let is_mapped = matches!(kind, Kind::Parameters)
        && config.shards_parameters()
        && matches!(config.transport.gather(), Gather::Mapped);
    let is_read = match kind {
        Kind::Parameters => config.shards_optimizer() && mesh.zero > 1 || is_mirrored,
        Kind::Gradients => mesh.zero > 1 || config.reduces_in_place() && (mesh.replica > 1 || is_mirrored),
        Kind::Reduced => config.stage == 0 && mesh.zero > 1 || mesh.replica > 1 || is_mirrored,
        Kind::Partial => mesh.replica > 1,
        Kind::Outgoing => mesh.pipeline > 1,
        _ => false,
    };
    match home {
        Home::Common => is_mapped,
        // Nobody minds if what peers may read is empty, or read by nobody.
        Home::Shared => {
            !is_mapped
                && matches!(kind, Kind::Parameters | Kind::Gradients | Kind::Reduced | Kind::Partial | Kind::Outgoing)
        }
        Home::Private => !is_mapped && !is_read,
    }
}
