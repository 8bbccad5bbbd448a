//! Tables: layouts with one number changed. The provers object to each, except those that a rule here excuses; the
//! simulator confirms that those train as before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zero_plan::lines::{ALIGNMENT, LINE_BYTES};
use zero_plan::{Bucket, Chunk, Coordinates, Home, Kind, Memory, PipelineStage, Placement, Plan, Width, prove};

use crate::model::{models, small_models};
use crate::simulator::{Pace, simulate};

/// The tables of a layout.
#[derive(Clone)]
struct Tables {
    chunks: Vec<Chunk>,
    placements: Vec<Placement>,
    buckets: Vec<Bucket>,
    memories: Vec<Memory>,
}

/// A number of a layout: of a unit, of a bucket, or of a pipeline stage.
#[derive(Clone, Copy, Debug)]
enum Place {
    ChunkEnd(usize),
    Chunk(usize),
    PipelineStageOf(usize),
    Start(usize),
    Padded(usize),
    Saved(usize),
    Output(usize),
    BucketOf(usize),
    BucketFirst(usize),
    BucketLast(usize),
    BucketPipelineStage(usize),
    BucketStart(usize),
    BucketElements(usize),
    Staging(usize),
    StagingSlot(usize),
    Partial(usize),
    RegionOffset(usize, Kind),
    RegionBytes(usize, Kind),
    Private(usize),
    Shared(usize),
    Common(usize),
    GatheredSlot(usize),
    ActivationSlot(usize),
    OutgoingSlot(usize),
    ReturningSlot(usize),
}

impl Place {
    /// A cache line, in the unit of the number.
    fn line(self) -> usize {
        match self {
            Self::Saved(_) | Self::Output(_) | Self::RegionOffset(..) | Self::RegionBytes(..) => LINE_BYTES,
            Self::Private(_) | Self::Shared(_) | Self::Common(_) => LINE_BYTES,
            Self::ActivationSlot(_) | Self::OutgoingSlot(_) | Self::ReturningSlot(_) => LINE_BYTES,
            _ => ALIGNMENT,
        }
    }
}

impl Tables {
    fn of(plan: &Plan) -> Self {
        Self {
            chunks: plan.chunks.to_vec(),
            placements: plan.placements.to_vec(),
            buckets: plan.buckets.to_vec(),
            memories: plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.memory).collect(),
        }
    }

    /// Calls back with the plan, in which these tables are used.
    fn with<R>(&self, plan: &Plan, use_plan: impl FnOnce(&Plan) -> R) -> R {
        let pipeline_stages = plan.pipeline_stages.iter().zip(&self.memories);
        let pipeline_stages: Vec<_> =
            pipeline_stages.map(|(pipeline_stage, &memory)| PipelineStage { memory, ..*pipeline_stage }).collect();
        use_plan(&Plan {
            chunks: &self.chunks,
            placements: &self.placements,
            buckets: &self.buckets,
            pipeline_stages: &pipeline_stages,
            ..*plan
        })
    }

    fn places(&self) -> Vec<Place> {
        use Place::*;
        let mut places: Vec<Place> = (0..self.chunks.len()).map(ChunkEnd).collect();
        for unit in 0..self.placements.len() {
            places.extend([Chunk(unit), PipelineStageOf(unit), Start(unit), Padded(unit)]);
            places.extend([Saved(unit), Output(unit), BucketOf(unit)]);
        }
        for bucket in 0..self.buckets.len() {
            places.extend([BucketFirst(bucket), BucketLast(bucket), BucketPipelineStage(bucket), BucketStart(bucket)]);
            places.extend([BucketElements(bucket), Staging(bucket), Partial(bucket)]);
            places.extend(self.buckets[bucket].slot.map(|_| StagingSlot(bucket)));
        }
        for pipeline in 0..self.memories.len() {
            places.extend([Private(pipeline), Shared(pipeline), Common(pipeline)]);
            places.extend([
                GatheredSlot(pipeline),
                ActivationSlot(pipeline),
                OutgoingSlot(pipeline),
                ReturningSlot(pipeline),
            ]);
            places.extend(Kind::ALL.map(|kind| RegionOffset(pipeline, kind)));
            places.extend(Kind::ALL.map(|kind| RegionBytes(pipeline, kind)));
        }
        places
    }

    fn number(&mut self, place: Place) -> &mut usize {
        match place {
            Place::ChunkEnd(chunk) => &mut self.chunks[chunk].end,
            Place::Chunk(unit) => &mut self.placements[unit].chunk,
            Place::PipelineStageOf(unit) => &mut self.placements[unit].pipeline_stage,
            Place::Start(unit) => &mut self.placements[unit].start,
            Place::Padded(unit) => &mut self.placements[unit].padded,
            Place::Saved(unit) => &mut self.placements[unit].saved_bytes,
            Place::Output(unit) => &mut self.placements[unit].output_bytes,
            Place::BucketOf(unit) => &mut self.placements[unit].bucket,
            Place::BucketFirst(bucket) => &mut self.buckets[bucket].first,
            Place::BucketLast(bucket) => &mut self.buckets[bucket].last,
            Place::BucketPipelineStage(bucket) => &mut self.buckets[bucket].pipeline_stage,
            Place::BucketStart(bucket) => &mut self.buckets[bucket].start,
            Place::BucketElements(bucket) => &mut self.buckets[bucket].elements,
            Place::Staging(bucket) => &mut self.buckets[bucket].staging,
            Place::StagingSlot(bucket) => self.buckets[bucket].slot.as_mut().expect("a bucket with a slot"),
            Place::Partial(bucket) => &mut self.buckets[bucket].partial,
            Place::RegionOffset(pipeline, kind) => &mut self.memories[pipeline].regions[kind as usize].offset_bytes,
            Place::RegionBytes(pipeline, kind) => &mut self.memories[pipeline].regions[kind as usize].bytes,
            Place::Private(pipeline) => &mut self.memories[pipeline].home_bytes[Home::Private as usize],
            Place::Shared(pipeline) => &mut self.memories[pipeline].home_bytes[Home::Shared as usize],
            Place::Common(pipeline) => &mut self.memories[pipeline].home_bytes[Home::Common as usize],
            Place::GatheredSlot(pipeline) => &mut self.memories[pipeline].gathered_slot,
            Place::ActivationSlot(pipeline) => &mut self.memories[pipeline].activation_slot_bytes,
            Place::OutgoingSlot(pipeline) => &mut self.memories[pipeline].outgoing_slot_bytes,
            Place::ReturningSlot(pipeline) => &mut self.memories[pipeline].returning_slot_bytes,
        }
    }
}

/// Why a layout is as good as before when the number at `place` changes from `from` to `to`, if it is.
fn excuse(plan: &Plan, place: Place, from: usize, to: usize) -> Option<&'static str> {
    match place {
        Place::Private(_) | Place::Shared(_) | Place::Common(_) if to > from => Some("room to spare"),
        Place::GatheredSlot(_) | Place::OutgoingSlot(_) | Place::ReturningSlot(_) if to > from => Some("room to spare"),
        Place::RegionBytes(..) | Place::RegionOffset(..) | Place::ActivationSlot(_) if to > from => {
            Some("room to spare")
        }
        // In a chunk or a unit that is not the largest, or after the last one.
        Place::Saved(_) | Place::Output(_) | Place::Staging(_) if to > from => Some("room to spare"),
        Place::Output(unit) if plan.tables().leaves(unit) => Some("the place of an output that lies where it leaves"),
        // Regions end on a cache line, and narrow numbers may leave half of the last line empty.
        Place::RegionBytes(_, kind)
            if from - to <= LINE_BYTES / 2 && kind.width(&plan.config).is_some_and(Width::is_narrow) =>
        {
            Some("less room to spare")
        }
        Place::RegionBytes(pipeline, kind) if to >= needed(plan, pipeline, kind)? => Some("less room to spare"),
        Place::StagingSlot(bucket) if !shares_slot(plan, bucket, from) && !shares_slot(plan, bucket, to) => {
            Some("another name for a slot that one bucket has to itself")
        }
        Place::Staging(bucket) | Place::Partial(bucket) if plan.buckets[bucket].elements == 0 => {
            Some("the staging of a bucket of nothing")
        }
        Place::Staging(bucket) if !shares_slot(plan, bucket, plan.buckets[bucket].slot?) => {
            Some("staging that one bucket has to itself, elsewhere in its slot")
        }
        Place::Partial(_) if plan.config.mesh.replica == 1 || plan.config.reduces_in_place() => {
            Some("partial sums where there are none")
        }
        Place::Partial(bucket) if !shares_partial(plan, bucket) => {
            Some("partial sums that one bucket has to itself, elsewhere in their region")
        }
        _ => None,
    }
}

/// Whether another bucket of the same pipeline stage uses staging slot `slot`.
fn shares_slot(plan: &Plan, bucket: usize, slot: usize) -> bool {
    let pipeline = plan.buckets[bucket].pipeline_stage;
    let others = plan.buckets.iter().enumerate().filter(|&(other, _)| other != bucket);
    others.filter(|(_, other)| other.pipeline_stage == pipeline).any(|(_, other)| other.slot == Some(slot))
}

/// Whether another bucket of the same pipeline stage takes turns with its place for partial sums.
fn shares_partial(plan: &Plan, bucket: usize) -> bool {
    let (own, others) = (&plan.buckets[bucket], plan.buckets.iter().enumerate());
    let mut others =
        others.filter(|&(other, at)| other != bucket && at.pipeline_stage == own.pipeline_stage && at.elements > 0);
    others.any(|(_, other)| other.partial == own.partial)
}

/// Bytes that are used of a region whose size is rounded up, or is made for larger buckets than the last one in it.
fn needed(plan: &Plan, pipeline: usize, kind: Kind) -> Option<usize> {
    let buckets = || plan.buckets.iter().filter(move |bucket| bucket.pipeline_stage == pipeline);
    let (zero, width) = (plan.config.mesh.zero, plan.config.precision.reduce.bytes());
    match kind {
        Kind::Gradients => buckets().map(|bucket| width * (bucket.staging + bucket.elements)).max(),
        Kind::Partial => buckets().map(|bucket| width * (bucket.partial + bucket.elements / zero)).max(),
        Kind::Workspace => {
            let units = plan.units.iter().zip(plan.placements).filter(|(_, at)| at.pipeline_stage == pipeline);
            let scratch = units.map(|(unit, _)| unit.workspace_bytes).max()?;
            let (first, last) = (&plan.units[0], plan.units.last()?);
            // Inputs to be converted lie at its start, and the half of a batch that is not needed lies after them.
            let given = if pipeline == 0 { first.given_bytes.next_multiple_of(LINE_BYTES) } else { 0 };
            let is_at_an_end = plan.chunks.len() > 1 && (pipeline == 0 || pipeline + 1 == plan.pipeline_stages.len());
            let unneeded = first.input_bytes.max(first.given_bytes).max(last.targets_bytes);
            Some(scratch.max(given + if is_at_an_end { unneeded } else { 0 }))
        }
        Kind::Activations => decoded(plan, pipeline),
        _ => None,
    }
}

/// The end of the bytes that a decoding walk uses, if the walk decides the length of the region. A pipeline stage may
/// need only one of the two places that units take turns with, and not all of it.
fn decoded(plan: &Plan, pipeline: usize) -> Option<usize> {
    let memory = &plan.pipeline_stages[pipeline].memory;
    let places = plan.places(Coordinates { zero: 0, replica: 0, pipeline }).decoding();
    if !places.is_decoding || memory.region(Kind::Activations).bytes > memory.decoding.bytes() {
        return None;
    }
    let head = plan.units.len() - 1;
    let of_unit = |unit| {
        let run = (unit < head).then(|| [places.saved(unit, 0), places.output(unit, 0, 0)]);
        [places.input(unit, 0), places.cache(unit)].into_iter().chain(run.into_iter().flatten())
    };
    let units = (0..plan.units.len()).filter(|&unit| plan.placements[unit].pipeline_stage == pipeline);
    let inside = units.flat_map(of_unit).filter(|place| place.region == Kind::Activations && place.len_bytes > 0);
    inside.map(|place| place.end_bytes()).max()
}

/// Changes every number of a layout by one and by a cache line. Counts the objections of the provers, and the excuses.
fn change_each_number(plan: &Plan) -> (usize, BTreeMap<&'static str, usize>) {
    let tables = Tables::of(plan);
    let (mut rejected, mut excused) = (0, BTreeMap::new());
    for place in tables.places() {
        let from = *tables.clone().number(place);
        let line = place.line();
        let values = [Some(from + 1), from.checked_sub(1), Some(from + line), from.checked_sub(line)];
        for to in values.into_iter().flatten() {
            let mut changed = tables.clone();
            *changed.number(place) = to;
            if changed.with(plan, |changed| prove(changed).is_err()) {
                rejected += 1;
                continue;
            }
            let Some(rule) = excuse(plan, place, from, to) else {
                panic!("{to} for {from} survives as {place:?}: {:?}", plan.config)
            };
            // Places do not depend on which rank is ahead.
            let done = changed.with(plan, |changed| simulate(changed, Pace::Random(1)));
            assert_eq!(done, Ok(()), "{to} for {from} as {place:?}, excused by: {rule}; {:?}", plan.config);
            *excused.entry(rule).or_default() += 1;
        }
    }
    (rejected, excused)
}

#[test]
fn every_number_of_a_layout_matters() {
    let (mut rejected, mut excused) = (0, BTreeMap::<_, usize>::new());
    for model in small_models() {
        let (more, rules) = model.plan().with(change_each_number);
        rejected += more;
        for (rule, count) in rules {
            *excused.entry(rule).or_default() += count;
        }
    }
    assert!(rejected > 10_000);
    assert_eq!(excused.len(), 8, "{excused:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_number_of_a_random_layout_matters(model in models(8)) {
        model.plan().with(change_each_number);
    }
}

#[test]
fn regions_lie_where_those_who_read_them_can() {
    for model in small_models() {
        model.plan().with(|plan| {
            for pipeline in 0..plan.pipeline_stages.len() {
                for kind in Kind::ALL {
                    assert_home_matters(plan, pipeline, kind);
                }
            }
        });
    }
}

/// Asserts that a region can only be moved to a home where more ranks can read it than must.
fn assert_home_matters(plan: &Plan, pipeline: usize, kind: Kind) {
    let was = plan.pipeline_stages[pipeline].memory.region(kind).home;
    for home in [Home::Private, Home::Shared, Home::Common] {
        let mut tables = Tables::of(plan);
        let memory = &mut tables.memories[pipeline];
        memory.regions[kind as usize].home = home;
        pack(memory, plan.config.in_common());
        let is_accepted = tables.with(plan, |changed| changed.check().is_ok());
        let is_less = matches!((was, home), (Home::Shared, Home::Private));
        let is_read = plan.pipeline_stages[pipeline].memory.region(kind).bytes > 0 && plan.config.mesh.zero > 1;
        let may_be = home == was || (was, home) == (Home::Private, Home::Shared) || is_less && !is_read;
        assert!(is_accepted == (home == was) || may_be, "{kind:?} in {home:?}, not {was:?}");
    }
}

/// Puts regions one after another in their homes, so that only the homes can be wrong.
fn pack(memory: &mut Memory, shards: usize) {
    memory.home_bytes = [0; Home::ALL.len()];
    for region in &mut memory.regions {
        let end = &mut memory.home_bytes[region.home as usize];
        region.offset_bytes = *end;
        *end += if region.home.is_common() { region.bytes * shards } else { region.bytes };
    }
}
