//! Check of a layout: every parameter has one owner, everything fits, nothing overlaps. Shares no code with the builder
//! of layouts, and allows room to spare.

use super::BrokenRule;
use super::pieces::{check_activations, check_pieces};
use crate::config::{Config, Gather, TierKind};
use crate::layout::{Bucket, Home, Kind, Memory, Region, Tables};
use crate::lines::BLOCK_BYTES;
use crate::mesh::Coordinates;
use crate::place::{Kept, Place, Places, State};
use crate::schedule::Parcel;

/// The first rule that a layout breaks. `memories` has the arena of each pipeline stage.
pub const fn check_layout(tables: &Tables, memories: &[Memory]) -> BrokenRule {
    rules! {
        tables.placements.len() == tables.units.len() => "placements and units differ in number",
        memories.len() == tables.config.mesh.pipeline => "arenas and pipeline stages differ in number",
    }
    if let Some(rule) = check_chunks(tables) {
        return Some(rule);
    }
    if let Some(rule) = check_cover(tables) {
        return Some(rule);
    }
    let mut pipeline = 0;
    while pipeline < memories.len() {
        let memory = &memories[pipeline];
        let own = last_rank(tables, memory, pipeline);
        if let Some(rule) = check_flat(&own) {
            return Some(rule);
        }
        if let Some(rule) = check_buckets(&own) {
            return Some(rule);
        }
        if let Some(rule) = check_units(&own) {
            return Some(rule);
        }
        if let Some(rule) = check_decoding(&own.decoding()) {
            return Some(rule);
        }
        if let Some(rule) = check_pieces(&own) {
            return Some(rule);
        }
        if let Some(rule) = check_copies(&own) {
            return Some(rule);
        }
        if let Some(rule) = check_regions(tables, memory) {
            return Some(rule);
        }
        pipeline += 1;
    }
    None
}

/// The places of the last rank of a pipeline stage, which reach farthest into a region that is divided among ranks.
const fn last_rank<'a>(tables: &Tables<'a>, memory: &'a Memory, pipeline: usize) -> Places<'a> {
    let mesh = &tables.config.mesh;
    let at = Coordinates { zero: mesh.zero - 1, replica: mesh.replica - 1, pipeline };
    Places { tables: *tables, memory, at, is_decoding: false }
}

/// Whether a place starts where a part of a flat buffer may start.
const fn is_aligned(config: &Config, place: Place) -> bool {
    place.offset_bytes.is_multiple_of(place.region.bytes(config, config.device.alignment()))
}

/// Whether an offset in bytes lies on a line of the device's memory.
const fn bytes_on_line(config: &Config, offset: usize) -> bool {
    offset.is_multiple_of(config.device.line_bytes())
}

/// Chunks tile the units, and every unit has the number of its chunk.
const fn check_chunks(tables: &Tables) -> BrokenRule {
    rules! { tables.chunks.len() == tables.config.chunks() => "a number of chunks that was not asked for", }
    let (mut chunk, mut end) = (0, 0);
    while chunk < tables.chunks.len() {
        rules! {
            tables.chunks[chunk].first == end && tables.chunks[chunk].end > end => "chunks leave a gap or overlap",
            tables.chunks[chunk].end <= tables.units.len() => "a chunk of units that do not exist",
        }
        let mut unit = end;
        end = tables.chunks[chunk].end;
        while unit < end {
            let at = &tables.placements[unit];
            rules! {
                at.chunk == chunk && at.pipeline_stage == chunk % tables.config.mesh.pipeline => "a unit outside its chunk",
            }
            unit += 1;
        }
        chunk += 1;
    }
    rules! { end == tables.units.len() => "units without a chunk", }
    None
}

/// Whether a place, rounded up to a whole line, lies in its region.
const fn fits(own: &Places, place: Place) -> bool {
    own.tables.config.whole_lines(place.end_bytes()) <= own.region_bytes(place.region)
}

/// Whether a place lies after another one, and starts on a line.
const fn follows(own: &Places, before: Place, place: Place) -> bool {
    place.offset_bytes >= before.end_bytes() && bytes_on_line(own.tables.config, place.offset_bytes)
}

/// The flat buffers of a pipeline stage follow one another, and each has its parameters once.
const fn check_flat(own: &Places) -> BrokenRule {
    let Tables { config, units, chunks, placements, .. } = own.tables;
    let (mut start, mut chunk) = (0, own.at.pipeline);
    while chunk < chunks.len() {
        let mut i = chunks[chunk].first;
        while i < chunks[chunk].end {
            let (unit, at) = (&units[i], &placements[i]);
            let (is_tied, owner) = (unit.is_tied(i), &placements[unit.source]);
            rules! {
                at.start == start => "flat buffers leave a gap or overlap",
                at.padded >= unit.params && at.padded.is_multiple_of(config.mesh.data_ranks() * config.device.alignment()) =>
                    "a flat buffer that is not made of equal parts of whole lines",
                unit.source <= i && !units[unit.source].is_tied(unit.source) => "a tie that is not to an owner before it",
                !is_tied || i + 1 == units.len() && unit.params == 0 && at.padded == owner.padded =>
                    "a tied unit that is not the last, or has parameters of its own",
                unit.takes <= units[unit.source].params => "a layer that takes more parameters than their owner has",
                at.holds == (at.padded > 0 && (!is_tied || owner.pipeline_stage != own.at.pipeline)) =>
                    "parameters that lie nowhere, or twice",
            }
            start += at.padded;
            i += 1;
        }
        chunk += config.mesh.pipeline;
    }
    None
}

/// The units of a pipeline stage: activations lie apart, everything fits its region.
const fn check_units(own: &Places) -> BrokenRule {
    let Tables { config, units, chunks, placements, .. } = own.tables;
    let (mut holders, mut chunk) = (0, own.at.pipeline);
    while chunk < chunks.len() {
        let mut i = chunks[chunk].first;
        let mut last = if chunk + 1 == chunks.len() { own.targets(0) } else { own.input(i, 0) };
        while i < chunks[chunk].end {
            let at = &placements[i];
            if config.recomputes(units, i) {
                rules! {
                    bytes_on_line(config, at.saved_bytes) && fits(own, own.output_again(i)) =>
                        "recomputed activations that do not fit their region",
                }
            } else if !own.tables.takes_turns(i) {
                rules! { follows(own, last, own.saved(i, 0)) => "activations overlap", }
                last = own.saved(i, 0);
            }
            if !own.tables.leaves(i) && !own.tables.takes_turns(i) {
                rules! { follows(own, last, own.output(i, 0, 0)) => "activations overlap", }
                last = own.output(i, 0, 0);
            }
            if let Some(rule) = check_states(own, i) {
                return Some(rule);
            }
            if let Some(rule) = check_turns(own, i) {
                return Some(rule);
            }
            holders += at.holds as usize;
            i += 1;
        }
        rules! { last.end_bytes() <= own.slot(0).end_bytes() => "activations that do not fit their slot", }
        if let Some(rule) = check_activations(own, last.end_bytes()) {
            return Some(rule);
        }
        chunk += config.mesh.pipeline;
    }
    check_slots(own, holders)
}

/// A decoding walk: the places that a unit reads, writes and caches are disjoint, and no unit overwrites the cache of
/// another.
const fn check_decoding(own: &Places) -> BrokenRule {
    let Tables { config, units, chunks, .. } = own.tables;
    if !own.is_decoding {
        return None;
    }
    // Caches follow one another, after the places that units take turns with.
    let (mut turns_end, mut first_cache, mut caches_end) = (0, usize::MAX, 0);
    let mut chunk = own.at.pipeline;
    while chunk < chunks.len() {
        let mut i = chunks[chunk].first;
        while i < chunks[chunk].end {
            let (input, cache) = (own.input(i, 0), own.cache(i));
            rules! {
                fits(own, input) && bytes_on_line(config, input.offset_bytes) => "an input of decoding that does not fit its region",
            }
            turns_end = if input.end_bytes() > turns_end { input.end_bytes() } else { turns_end };
            // The head does not run forward: it predicts.
            if i + 1 < units.len() {
                let (saved, output) = (own.saved(i, 0), own.output(i, 0, 0));
                rules! {
                    fits(own, saved) && fits(own, output) && bytes_on_line(config, output.offset_bytes) =>
                        "activations of decoding that do not fit their region",
                    saved.is_apart_from(input) && saved.is_apart_from(output) && input.is_apart_from(output) =>
                        "activations of decoding that overlap",
                    own.tables.leaves(i) || i + 1 == chunks[chunk].end || same(output, own.input(i + 1, 0)) =>
                        "an output in decoding that is not where the next unit reads it",
                }
                if matches!(saved.region, Kind::Activations) && saved.end_bytes() > turns_end {
                    turns_end = saved.end_bytes();
                }
                if !own.tables.leaves(i) && output.end_bytes() > turns_end {
                    turns_end = output.end_bytes();
                }
            }
            if cache.len_bytes > 0 {
                rules! {
                    cache.offset_bytes >= caches_end && bytes_on_line(config, cache.offset_bytes) => "caches that overlap",
                    fits(own, cache) => "a cache that does not fit its region",
                }
                first_cache = if cache.offset_bytes < first_cache { cache.offset_bytes } else { first_cache };
                caches_end = cache.end_bytes();
            }
            i += 1;
        }
        chunk += config.mesh.pipeline;
    }
    rules! { turns_end <= first_cache => "a cache in the places that units take turns with", }
    None
}

/// Whether two places begin at the same byte, and have the same length.
const fn same(a: Place, b: Place) -> bool {
    a.region as usize == b.region as usize && a.offset_bytes == b.offset_bytes && a.len_bytes == b.len_bytes
}

/// The states of a unit that this rank stores from one step to the next, and the sums of its gradients.
const fn check_states(own: &Places, i: usize) -> BrokenRule {
    let (config, mut state) = (own.tables.config, 0);
    while state < State::ALL.len() {
        let place = own.state(State::ALL[state], i);
        state += 1;
        let Some((_, place)) = place else { continue };
        rules! { fits(own, place) => "parameters or their states that do not fit their region", }
    }
    if let Some((_, first)) = own.state(State::FirstMoment, i) {
        rules! { 2 * first.end_bytes() <= own.region_bytes(first.region) => "first moments that do not fit their half", }
    }
    if config.serves() {
        let staged = own.staged(i);
        rules! {
            !config.serve.staged || !own.tables.placements[i].holds || fits(own, staged) =>
                "staged parameters that do not fit their region",
        }
        return None;
    }
    rules! {
        fits(own, own.partial(i)) => "partial sums that do not fit their region",
        fits(own, own.reduced(i)) => "reduced gradients that do not fit their region",
        match own.kept(Kept::Sums, i) { Some((_, kept)) => fits(own, kept), None => true } =>
            "sums that do not fit their region",
        !config.precision.reduce.is_narrow() || fits(own, own.wide_gradients(i)) =>
            "gradients of a unit that do not fit their region",
    }
    None
}

/// The room of one unit in regions that units take turns in.
const fn check_turns(own: &Places, i: usize) -> BrokenRule {
    let at = &own.tables.placements[i];
    rules! {
        !at.holds || at.padded <= own.memory.gathered_slot => "a flat buffer that does not fit a slot",
        own.workspace(i).end_bytes() <= own.product_workspace().offset_bytes => "a workspace that does not fit its region",
        !own.tables.is_orthogonalized(i) || own.orthogonal_room(i).end_bytes() <= own.product_workspace().offset_bytes =>
            "room for a matrix that does not fit the workspace",
        bytes_on_line(own.tables.config, own.product_workspace().offset_bytes) =>
            "a workspace of products that does not start on a line",
    }
    if !own.tables.config.serves() {
        let gradient = own.output_gradient(i);
        // The region has two places of this length.
        let half = own.memory.region(Kind::ActivationGradients).bytes / 2;
        rules! {
            own.tables.config.whole_lines(gradient.len_bytes) <= half && own.tables.config.whole_lines(own.input(i, 0).len_bytes) <= half =>
                "gradients of activations that do not fit their region",
            match own.input_gradient(i, 0) { Some(other) => gradient.is_apart_from(other), None => true } =>
                "gradients of activations that overlap",
        }
    }
    if own.tables.leaves(i) {
        let (one, two) = (own.outgoing(Parcel::Activations, i, 0), own.outgoing(Parcel::Activations, i, 1));
        rules! {
            follows(own, one, two) && follows(own, two, own.outgoing(Parcel::Gradients, i, 0)) && fits(own, two) =>
                "a result that does not fit its outgoing slot",
        }
    }
    if i > 0 && own.tables.chunks[at.chunk].first == i {
        let (one, two) = (own.outgoing(Parcel::Gradients, i, 0), own.outgoing(Parcel::Gradients, i, 1));
        rules! { follows(own, one, two) && fits(own, two) => "a gradient that does not fit its outgoing slot", }
    }
    None
}

/// Regions of slots hold as many slots as a schedule may fill at one time.
const fn check_slots(own: &Places, holders: usize) -> BrokenRule {
    let Tables { config, units, chunks, .. } = own.tables;
    let Memory { gathered_slot, activation_slot_bytes, outgoing_slot_bytes, returning_slot_bytes, .. } = *own.memory;
    let ahead = if config.shards_parameters() { config.prefetch } else { 0 };
    let slots = if ahead >= holders { holders } else { ahead + 1 };
    let gathered = Kind::Gathered.bytes(config, slots * gathered_slot);
    let is_at_an_end = own.at.pipeline == 0 || own.at.pipeline + 1 == config.mesh.pipeline;
    rules! {
        chunks.len() == 1 || !is_at_an_end || own.unneeded().len_bytes >= own.targets(0).len_bytes
            && own.unneeded().len_bytes >= units[0].input_bytes
            && own.unneeded().len_bytes >= units[0].given_bytes =>
            "half a batch that does not fit the workspace",
        own.at.pipeline > 0 || own.given().end_bytes() <= own.product_workspace().offset_bytes => "inputs that do not fit the workspace before they are converted",
        !config.uses_slots() || config.holds_parameters() || own.region_bytes(Kind::Gathered) >= gathered =>
            "slots that do not fit their region",
        fits(own, own.slot(own.tables.activation_slots(own.at.pipeline) - 1)) => "activations that do not fit their region",
        gathered_slot.is_multiple_of(config.device.alignment()) && bytes_on_line(config, activation_slot_bytes) => "a slot that does not start on a line",
        bytes_on_line(config, outgoing_slot_bytes) && bytes_on_line(config, returning_slot_bytes) =>
            "an outgoing slot that does not start on a line",
    }
    None
}

/// Buckets of a pipeline stage lie in one chunk each, follow its units, and share staging only where they take turns.
const fn check_buckets(own: &Places) -> BrokenRule {
    let Tables { config, units, buckets, placements, .. } = own.tables;
    let mut i = 0;
    while i < buckets.len() {
        let bucket = &buckets[i];
        if bucket.pipeline_stage == own.at.pipeline {
            let (first, last) = (&placements[bucket.first], &placements[bucket.last]);
            rules! {
                first.chunk == last.chunk && first.pipeline_stage == own.at.pipeline => "a bucket across chunks",
                bucket.start == first.start => "a bucket that starts elsewhere than its first unit",
                bucket.start + bucket.elements == last.start + last.padded =>
                    "a bucket that ends elsewhere than its last unit",
            }
            if config.serves() {
                i += 1;
                continue;
            }
            let (gradients, sums) = (staging(own, bucket), partial(own, bucket));
            rules! {
                fits(own, gradients) => "staging out of bounds",
                is_aligned(config, gradients) && is_aligned(config, sums) => "staging that does not start on a line",
                bucket.slot.is_some() == (config.shards_gradients() && bucket.elements > 0) =>
                    "a staging slot although all gradients are kept, or none although they are not",
                bucket.first == bucket.last || !units[bucket.last].is_tied(bucket.last) =>
                    "a tied unit in a bucket with other units",
            }
            let mut other = 0;
            while other < i {
                let before = &buckets[other];
                rules! {
                    before.pipeline_stage != own.at.pipeline || may_coexist(bucket, before) =>
                        "buckets that overlap in staging and do not take turns",
                    before.pipeline_stage != own.at.pipeline || may_combine(bucket, before, config.mesh.zero) =>
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
const fn check_cover(tables: &Tables) -> BrokenRule {
    let (mut i, mut end) = (0, tables.units.len());
    while i < tables.buckets.len() {
        let bucket = &tables.buckets[i];
        rules! {
            bucket.first <= bucket.last && bucket.last + 1 == end => "buckets leave a gap or overlap",
            bucket.pipeline_stage == tables.placements[bucket.first].pipeline_stage => "a bucket on another pipeline stage than its units",
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

/// The local gradients of a bucket.
const fn staging(own: &Places, bucket: &Bucket) -> Place {
    from_to(own.local_gradients(bucket.first), own.local_gradients(bucket.last))
}

/// The part of a bucket that this rank sums over its replica.
const fn partial(own: &Places, bucket: &Bucket) -> Place {
    from_to(own.partial(bucket.first), own.partial(bucket.last))
}

/// From the start of a place to the end of another.
const fn from_to(first: Place, last: Place) -> Place {
    Place { len_bytes: last.end_bytes() - first.offset_bytes, ..first }
}

/// Whether two buckets lie apart in staging, or share a slot, where a claim waits for the bucket before it. Compares
/// the numbers that places are made of, because the compiler evaluates it for each pair of buckets: there may be half a
/// million.
const fn may_coexist(a: &Bucket, b: &Bucket) -> bool {
    match (a.slot, b.slot) {
        (Some(a_slot), Some(b_slot)) if a_slot == b_slot => a.staging == b.staging,
        _ => a.staging + a.elements <= b.staging || b.staging + b.elements <= a.staging,
    }
}

/// Whether the sums of two buckets over one replica lie apart, or share a place, where a settle waits for the settle
/// before it.
const fn may_combine(a: &Bucket, b: &Bucket, zero: usize) -> bool {
    a.partial == b.partial || a.partial + a.elements / zero <= b.partial || b.partial + b.elements / zero <= a.partial
}

/// Regions of one home follow one another and end within it, and peers can reach what they read.
const fn check_regions(tables: &Tables, memory: &Memory) -> BrokenRule {
    let (mut ends, mut i) = ([0; Home::ALL.len()], 0);
    while i < memory.regions.len() {
        let region = &memory.regions[i];
        let end = &mut ends[region.home as usize];
        rules! {
            region.kind as usize == i => "regions in another order than their kinds",
            region.offset_bytes >= *end => "regions overlap",
            bytes_on_line(tables.config, region.offset_bytes) => "a region that does not start on a line",
            !is_in_blocks(tables.config, region) || region.offset_bytes.is_multiple_of(BLOCK_BYTES) =>
                "a region of a tier or a window that does not start on a block",
            suits(tables, region.kind, region.home) => "a region in a home that its readers cannot reach, or do not need",
        }
        *end = region.offset_bytes + region.bytes * region.home.holders(tables.config);
        rules! {
            *end <= memory.bytes_of(region.home) => "a region beyond the end of the arena",
        }
        i += 1;
    }
    None
}

/// Whether transfers between a tier and the device begin or end in a region.
const fn is_in_blocks(config: &Config, region: &Region) -> bool {
    let is_window = match region.kind {
        Kind::MasterWindow | Kind::OptimizerWindow | Kind::SumsWindow => true,
        Kind::ParametersWindow | Kind::Shards => true,
        Kind::Reduced => config.offloads_gradients(),
        Kind::Activations => config.offloads_activations(),
        _ => false,
    };
    region.home.is_tier() || is_window && region.bytes > 0
}

/// Copies for readers lie apart, and each has room for what the rank offers of every unit, one after another.
const fn check_copies(own: &Places) -> BrokenRule {
    let (mut end, mut copy) = (0, 0);
    while copy < own.tables.config.publish.copies {
        let whole = own.copy(copy);
        rules! {
            end <= whole.offset_bytes => "copies of published parameters that overlap",
            bytes_on_line(own.tables.config, whole.offset_bytes) => "a copy that does not start on a line",
            whole.end_bytes() <= own.stored_copies().offset_bytes => "a copy beyond the room for published parameters",
        }
        let (mut before, mut unit) = (whole.offset_bytes, 0);
        while unit < own.tables.units.len() {
            if own.offered(unit).is_some() {
                let (place, offered) = (own.published(unit, copy), own.offered_to(unit, copy));
                rules! {
                    before <= place.offset_bytes => "published units that overlap",
                    place.end_bytes() <= whole.end_bytes() => "a published unit beyond the end of its copy",
                    offered.end_bytes() <= own.region_bytes(offered.region) => "an offer beyond the room for it",
                }
                before = place.end_bytes();
            }
            unit += 1;
        }
        (end, copy) = (whole.end_bytes(), copy + 1);
    }
    None
}

/// Whether a region suits a home. States are in their tier, and so is the window where the host updates them. Mapped
/// gathers are views of contiguous shards, and ranks of a host share what they gather from other hosts, even before it is
/// converted. Peers read local gradients, updated shards of replicas, shards that a device has fetched for them, parcels
/// to another pipeline stage, and sums that an all-reduce spreads.
const fn suits(tables: &Tables, kind: Kind, home: Home) -> bool {
    let config = tables.config;
    let tier = match kind {
        Kind::Master | Kind::Optimizer => Some(config.offload.optimizer),
        Kind::Sums => Some(config.offload.gradients),
        Kind::StoredActivations => Some(config.offload.activations),
        Kind::Parameters if config.offloads_parameters() => Some(config.offload.parameters),
        Kind::SumsWindow | Kind::ParametersWindow | Kind::StepWords if config.updates_on_host() => Some(TierKind::Host),
        Kind::Relay if config.relays() => Some(TierKind::Host),
        Kind::Published if config.stores_published() => Some(TierKind::Host),
        _ => None,
    };
    if let Some(tier) = tier {
        return match tier {
            TierKind::Device => matches!(home, Home::Private),
            TierKind::Host => matches!(home, Home::Host),
            TierKind::Disk => matches!(home, Home::Disk),
        };
    }
    if config.transport.carries() {
        return matches!(home, Home::Private);
    }
    let mesh = &config.mesh;
    let last = tables.units.len() - 1;
    let is_mirrored = tables.placements[last].holds && tables.units[last].is_tied(last);
    let is_mapped = match kind {
        Kind::Parameters => config.shards_parameters() && matches!(config.gather(), Gather::Mapped),
        Kind::Gathered => config.shares_slots(),
        _ => false,
    };
    let is_read = match kind {
        Kind::Parameters => config.shards_optimizer() && mesh.zero > 1 || is_mirrored,
        Kind::Gradients => mesh.zero > 1 || config.reduces_in_place() && (mesh.replica > 1 || is_mirrored),
        Kind::Reduced => {
            let is_spread = config.stage == 0 || config.optimizer.orthogonalizes();
            is_spread && mesh.zero > 1 || mesh.replica > 1 || is_mirrored
        }
        Kind::Partial => mesh.replica > 1,
        Kind::Outgoing => mesh.pipeline > 1,
        Kind::Inbox => config.shares_gathers() && config.converts_gathers(),
        Kind::Shards => config.gathers_fetched() && mesh.zero > 1,
        _ => false,
    };
    match home {
        Home::Common => is_mapped,
        // A region that peers may read is allowed to be empty, or unread.
        Home::Shared => {
            let may_be_read =
                matches!(kind, Kind::Parameters | Kind::Gradients | Kind::Reduced | Kind::Partial | Kind::Outgoing);
            !is_mapped && (may_be_read || is_read)
        }
        Home::Private => !is_mapped && !is_read,
        Home::Host | Home::Disk => false,
    }
}
