//! Layout: what must be true of places, computed independently from sizes. Shares nothing with the check.

use std::ops::Range;

use proptest::prelude::*;
use zero_plan::lines::ALIGNMENT;
use zero_plan::{
    Config, Coordinates, Home, Kind, Memory, Often, OptimizerKind, Pass, Plan, TransportKind, Unit, Width,
};

use crate::model::{Model, config, mesh, models};

/// Asserts that stretches lie in `0..end` and that no two of them overlap.
fn assert_disjoint(mut stretches: Vec<Range<usize>>, end: usize) {
    stretches.retain(|stretch| !stretch.is_empty());
    stretches.sort_by_key(|stretch| stretch.start);
    for pair in stretches.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
    }
    assert!(stretches.last().is_none_or(|last| last.end <= end), "{stretches:?} leave 0..{end}");
}

/// A stretch of a flat buffer.
fn elements(start: usize, len: usize) -> Range<usize> {
    assert_eq!(start % ALIGNMENT, 0, "element {start} is not on a cache line of f32");
    start..start + len
}

/// A stretch of anything else.
fn bytes(start: usize, len: usize) -> Range<usize> {
    assert_eq!(start % 64, 0, "byte {start} is not on a cache line");
    start..start + len
}

fn line(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

/// Bytes of one unit of a region's sizes: of its numbers, or 1 if it has numbers of several widths.
fn width(plan: &Plan, kind: Kind) -> usize {
    let precision = plan.config.precision;
    let width = match kind {
        Kind::Parameters => precision.params,
        Kind::Gathered => precision.compute,
        Kind::ParametersWindow | Kind::Shards | Kind::Staged => precision.params,
        Kind::Gradients | Kind::Partial | Kind::Reduced | Kind::Sums | Kind::SumsWindow => precision.reduce,
        Kind::UnitGradients | Kind::Subtotals => Width::F32,
        Kind::Master | Kind::MasterWindow => precision.master,
        Kind::Optimizer | Kind::OptimizerWindow => precision.moments,
        Kind::Snapshot | Kind::Activations | Kind::Recomputed | Kind::StoredActivations => return 1,
        Kind::ActivationGradients | Kind::Outgoing | Kind::Workspace | Kind::Inbox => return 1,
        Kind::StepWords | Kind::Relay => return 1,
        Kind::Published | Kind::PublishedWindow => plan.config.publish.dtype,
    };
    width.bytes()
}

/// The units of a pipeline stage.
fn units_of(plan: &Plan, pipeline: usize) -> Vec<usize> {
    (0..plan.units.len()).filter(|&unit| plan.placements[unit].pipeline_stage == pipeline).collect()
}

fn assert_sound(plan: &Plan) {
    for pipeline in 0..plan.pipeline_stages.len() {
        assert_owners(plan, pipeline);
        assert_activations(plan, pipeline);
        assert_batch(plan, pipeline);
        assert_staging(plan, pipeline);
        assert_regions(plan, pipeline);
        assert_sizes(plan, pipeline);
    }
    assert_buckets(plan);
    assert_eq!(plan.params(), plan.units.iter().map(|unit| unit.params).sum::<usize>());
}

/// Parts are equal, and every gradient is in exactly one part of its own unit.
fn assert_owners(plan: &Plan, pipeline: usize) {
    let ranks = plan.config.mesh.data_ranks();
    let units = units_of(plan, pipeline);
    let mut owners = vec![None; units.iter().map(|&unit| plan.placements[unit].padded).sum()];
    for &unit in &units {
        let (at, source) = (&plan.placements[unit], plan.units[unit].source);
        let params = plan.units[source].params;
        let part = at.part(&plan.config);
        assert_eq!(part * ranks, at.padded);
        assert!((params..params + ranks * ALIGNMENT).contains(&at.padded), "padded more than needed");
        for rank in 0..ranks {
            for element in elements(at.start + rank * part, part) {
                assert_eq!(owners[element].replace(rank), None, "{element} has two owners");
            }
        }
        let is_elsewhere = plan.placements[source].pipeline_stage != pipeline;
        assert_eq!(at.holds, at.padded > 0 && (source == unit || is_elsewhere));
        // All parameters that its layer takes lie in this flat buffer.
        assert!(plan.units[unit].takes <= at.padded);
    }
    assert!(owners.iter().all(Option::is_some), "an element without an owner");
}

/// Bytes of the targets of a micro-batch.
fn targets(plan: &Plan) -> usize {
    plan.units.last().expect("a unit").targets_bytes
}

/// The contents of a slot for activations do not overlap: inputs, targets, saved values and outputs.
fn assert_activations(plan: &Plan, pipeline: usize) {
    let memory = &plan.pipeline_stages[pipeline].memory;
    for chunk in plan.chunks.iter().skip(pipeline).step_by(plan.pipeline_stages.len()) {
        let mut stretches = vec![bytes(0, plan.units[chunk.first].input_bytes)];
        if chunk.end == plan.units.len() {
            stretches.push(bytes(line(plan.units[chunk.first].input_bytes), targets(plan)));
        }
        for unit in chunk.first..chunk.end {
            let (sizes, at) = (&plan.units[unit], &plan.placements[unit]);
            if plan.config.recomputes(plan.units, unit) {
                let end = line(sizes.saved_bytes) + sizes.output_bytes;
                assert!(at.saved_bytes == 0 && end <= memory.region(Kind::Recomputed).bytes);
            } else {
                stretches.push(bytes(at.saved_bytes, sizes.saved_bytes));
            }
            if unit + 1 < chunk.end || chunk.end == plan.units.len() {
                stretches.push(bytes(at.output_bytes, sizes.output_bytes));
            } else {
                assert!(sizes.output_bytes <= memory.outgoing_slot_bytes);
            }
        }
        assert_disjoint(stretches, memory.activation_slot_bytes);
    }
}

/// Inputs that a pipeline stage converts do not overlap the half of a batch that it does not need.
fn assert_batch(plan: &Plan, pipeline: usize) {
    let places = plan.places(Coordinates { zero: 0, replica: 0, pipeline });
    let (given, unneeded) = (places.given(), places.unneeded());
    let region = plan.pipeline_stages[pipeline].memory.region(Kind::Workspace).bytes;
    assert_eq!((given.offset_bytes, given.len_bytes), (0, plan.units[0].given_bytes));
    assert_eq!((unneeded.offset_bytes % 64, unneeded.end_bytes()), (0, region));
    assert!(pipeline > 0 || given.end_bytes() <= unneeded.offset_bytes, "what is given would be overwritten");
    if plan.chunks.len() > 1 && (pipeline == 0 || pipeline + 1 == plan.pipeline_stages.len()) {
        assert!(unneeded.len_bytes >= targets(plan), "targets that the first pipeline stage cannot leave");
        let inputs = plan.units[0].input_bytes.max(plan.units[0].given_bytes);
        assert!(unneeded.len_bytes >= inputs, "inputs that the last pipeline stage cannot leave");
    }
}

/// Buckets tile the units from the last to the first, each within one chunk and as long as `bucket_bytes` allows.
fn assert_buckets(plan: &Plan) {
    let padded = |units: Range<usize>| units.map(|unit| plan.placements[unit].padded).sum::<usize>();
    let bytes = |elements: usize| elements * plan.config.precision.reduce.bytes();
    let is_tied = |unit: usize| plan.units[unit].source != unit;
    let mut end = plan.units.len();
    for (index, bucket) in plan.buckets.iter().enumerate() {
        let (units, chunk) = (bucket.first..end, plan.placements[bucket.first].chunk);
        assert!(bucket.last + 1 == end && !units.is_empty());
        assert_eq!(bucket.start, plan.placements[bucket.first].start);
        assert_eq!(bucket.elements, padded(units.clone()));
        assert!(
            units.clone().all(|unit| plan.placements[unit].bucket == index && plan.placements[unit].chunk == chunk)
        );
        let with_gradients = units.filter(|&unit| plan.placements[unit].padded > 0).count();
        let fits = bytes(bucket.elements) <= plan.config.bucket_bytes;
        assert!(with_gradients <= 1 || fits, "a bucket that is too large");
        let is_alone = is_tied(bucket.last);
        assert!(!is_alone || bucket.first == bucket.last, "a tied unit with others");
        if !is_alone && bucket.first > plan.chunks[chunk].first {
            let joined = bytes(padded(bucket.first - 1..end));
            assert!(bucket.elements > 0 && joined > plan.config.bucket_bytes, "a bucket that could be larger");
        }
        end = bucket.first;
    }
    assert_eq!(end, 0, "units without a bucket");
}

/// Whether a rank keeps its own gradients of a bucket only while they travel.
fn stages_gradients(plan: &Plan) -> bool {
    let config = &plan.config;
    config.stage >= 2 && (config.reduce == Often::PerMicroBatch || config.micro_batches == 1)
}

/// Buckets that share a slot lie at one place, and all others apart. If gradients are kept, no buckets share a slot.
fn assert_staging(plan: &Plan, pipeline: usize) {
    let region = plan.pipeline_stages[pipeline].memory.region(Kind::Gradients).bytes / width(plan, Kind::Gradients);
    let buckets: Vec<_> = plan.buckets.iter().filter(|bucket| bucket.pipeline_stage == pipeline).collect();
    let mut apart = Vec::new();
    for (index, bucket) in buckets.iter().enumerate() {
        assert_eq!(bucket.slot.is_some(), stages_gradients(plan) && bucket.elements > 0);
        let place = elements(bucket.staging, bucket.elements);
        assert!(place.end <= region);
        let shares = |other: &&&zero_plan::Bucket| bucket.slot.is_some() && other.slot == bucket.slot;
        match buckets[..index].iter().find(shares) {
            Some(other) => assert_eq!(bucket.staging, other.staging),
            None => {
                let sharing = buckets[index..].iter().filter(shares).map(|other| other.elements);
                apart.push(place.start..place.start + sharing.max().unwrap_or(bucket.elements));
            }
        }
    }
    assert_disjoint(apart, region);
}

/// Regions follow one another in their homes, which end with the last region.
fn assert_regions(plan: &Plan, pipeline: usize) {
    let memory = &plan.pipeline_stages[pipeline].memory;
    let homes = [
        (Home::Private, memory.bytes_of(Home::Private)),
        (Home::Shared, memory.bytes_of(Home::Shared)),
        (Home::Common, memory.bytes_of(Home::Common)),
    ];
    for (home, size) in homes {
        let shares = if home == Home::Common { plan.config.in_common() } else { 1 };
        let regions = memory.regions.iter().filter(|region| region.home == home);
        let stretches: Vec<_> = regions.map(|region| bytes(region.offset_bytes, region.bytes * shares)).collect();
        assert_eq!(stretches.iter().map(Range::len).sum::<usize>(), size, "{home:?} has room that nobody uses");
        assert_disjoint(stretches, size);
    }
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(memory.regions[index].kind, kind);
    }
}

/// The size of each region, by the table of the states that each stage keeps. All are rounded up to whole cache lines.
fn assert_sizes(plan: &Plan, pipeline: usize) {
    let (config, memory) = (&plan.config, &plan.pipeline_stages[pipeline].memory);
    let units = units_of(plan, pipeline);
    let sum = |of: &dyn Fn(usize) -> usize| units.iter().map(|&unit| of(unit)).sum::<usize>();
    let most = |of: &dyn Fn(usize) -> usize| units.iter().map(|&unit| of(unit)).max().unwrap_or(0);
    let padded = |unit: usize| plan.placements[unit].padded;
    let held_of = |unit: usize| if plan.placements[unit].holds { padded(unit) } else { 0 };
    let (held, gradients) = (sum(&held_of), sum(&padded));
    let owned = sum(&|unit| if plan.units[unit].params > 0 { padded(unit) } else { 0 });
    let holders = units.iter().filter(|&&unit| plan.placements[unit].holds).count();
    let states = if config.stage > 0 { owned / config.mesh.zero } else { owned };
    let ahead = if config.stage == 3 { config.prefetch } else { 0 };
    let gathered = match config.stage {
        3 if config.gather == Often::PerStep => held,
        _ => holders.min(ahead + 1) * most(&held_of),
    };
    // Layers compute on a copy of parameters that are stored in another width, or in memory they cannot read.
    let is_copied = config.stage == 3 && config.transport == TransportKind::Local;
    let has_slots = config.precision.params != config.precision.compute || is_copied;
    assert_eq!(config.uses_slots(), has_slots);
    let rounds = if config.reduce == Often::PerStep { 1 } else { config.micro_batches };
    let apart = stages_gradients(plan) || rounds > 1;
    let largest =
        plan.buckets.iter().filter(|bucket| bucket.pipeline_stage == pipeline).map(|bucket| bucket.elements).max();
    let staged =
        plan.buckets.iter().filter(|bucket| bucket.pipeline_stage == pipeline && bucket.elements > 0).count().min(2);
    let largest = largest.unwrap_or(0);
    // The first and the last pipeline stage need one half of a batch and leave the other in the workspace. Inputs
    // that have to be converted are given there first.
    let at_an_end = pipeline == 0 || pipeline + 1 == config.mesh.pipeline;
    let given = plan.units[0].given_bytes;
    let half_a_batch = plan.units[0].input_bytes.max(given).max(targets(plan));
    let half_a_batch = if plan.chunks.len() > 1 && at_an_end { half_a_batch } else { 0 };
    let batch = if pipeline == 0 { line(given) + half_a_batch } else { half_a_batch };
    // A matrix is made orthogonal on ranks that update its unit's parameters.
    let room = |unit: usize| {
        let Unit { params, matrices, .. } = plan.units[unit];
        if config.optimizer == OptimizerKind::Muon && params > 0 { matrices.room_bytes } else { 0 }
    };
    let needed = [
        (Kind::Parameters, if config.stage == 3 { held / config.mesh.zero } else { held }),
        (Kind::Gathered, if has_slots { gathered } else { 0 }),
        (Kind::Gradients, if stages_gradients(plan) { staged * largest } else { gradients }),
        (Kind::UnitGradients, if config.precision.reduce == Width::BF16 { most(&padded) } else { 0 }),
        (Kind::Partial, if config.mesh.replica > 1 && apart { 2 * largest / config.mesh.zero } else { 0 }),
        (Kind::Reduced, if apart { gradients / config.mesh.zero } else { 0 }),
        (Kind::Master, if config.precision.master == config.precision.params { 0 } else { states }),
        (Kind::Optimizer, 2 * states),
        (Kind::Workspace, most(&|unit| plan.units[unit].workspace_bytes.max(room(unit))).max(batch)),
    ];
    for kind in Kind::ALL {
        assert_eq!(kind.width(config).map_or(1, Width::bytes), width(plan, kind), "{kind:?}");
    }
    for (kind, len) in needed {
        let expected = line(len * width(plan, kind));
        assert_eq!(memory.region(kind).bytes, expected, "{kind:?} on pipeline stage {pipeline}");
    }
    let boundary = most(&|unit| line(plan.units[unit].input_bytes.max(plan.units[unit].output_bytes)));
    assert_eq!(memory.region(Kind::ActivationGradients).bytes, 2 * boundary);
    let slots = plan.tables().activation_slots(pipeline);
    let trained = slots * memory.activation_slot_bytes;
    assert_eq!(memory.region(Kind::Activations).bytes, trained.max(assert_decoding(plan, pipeline)));
    let outgoing = memory.region(Kind::Outgoing).bytes;
    assert_eq!(outgoing, 2 * (memory.outgoing_slot_bytes + memory.returning_slot_bytes));
    assert!(outgoing == 0 || plan.chunks.len() > 1);
    assert_eq!(memory.bytes_per_rank(), memory.regions.iter().map(|region| region.bytes).sum::<usize>());
}

/// While a sequence is decoded, units take turns with one place for saved values and two for the values that pass
/// between them, and caches lie after these. Gives the bytes that this takes, 0 if no layer of the model caches.
fn assert_decoding(plan: &Plan, pipeline: usize) -> usize {
    if plan.units.iter().all(|unit| unit.cache_bytes == 0) {
        return 0;
    }
    let (units, last) = (units_of(plan, pipeline), plan.units.len() - 1);
    let most = |size: &dyn Fn(&Unit) -> usize, with_head: bool| {
        let sized = units.iter().filter(|&&unit| with_head || unit < last).map(|&unit| line(size(&plan.units[unit])));
        sized.max().unwrap_or(0)
    };
    let boundary = most(&|unit| unit.input_bytes, true).max(most(&|unit| unit.output_bytes, false));
    let mut end = most(&|unit| unit.saved_bytes, false) + 2 * boundary;
    for &unit in &units {
        assert_eq!(plan.placements[unit].cache_bytes, end, "a cache that does not follow the one before");
        end += line(plan.units[unit].cache_bytes);
    }
    end
}

/// A stage needs no more memory than the stage before it, with two exceptions. Stage 2 replaces gradients of every unit
/// by staging for a few buckets and a shard of the sums, which is more if there are few large buckets. Stage 3 replaces
/// a replica of the parameters by a shard and, on a transport that copies, by slots.
fn assert_stages_compare(model: &Model) {
    let memories = |stage: u8| -> Vec<Memory> {
        let config = model.config.at_stage(stage);
        Model { config, ..model.clone() }
            .plan()
            .with(|plan| plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.memory).collect())
    };
    let of_stages = [0, 1, 2, 3].map(memories);
    (0..model.config.mesh.pipeline).for_each(|pipeline| {
        assert_memories_compare(model, of_stages.each_ref().map(|memories| &memories[pipeline]));
    });
}

/// The same for one pipeline stage: its arenas at each stage.
fn assert_memories_compare(model: &Model, at_stage: [&Memory; 4]) {
    let bytes = |stage: usize, kind| at_stage[stage].region(kind).bytes;
    // Stage by stage, one more kind of state is sharded.
    for (stage, kind) in [(1, Kind::Optimizer), (1, Kind::Master), (3, Kind::Parameters)] {
        assert!(bytes(stage, kind) <= bytes(stage - 1, kind), "{kind:?} at {stage}");
    }
    let others = [Kind::Activations, Kind::Recomputed, Kind::ActivationGradients, Kind::Outgoing, Kind::Workspace];
    for kind in others {
        assert!((1..=3).all(|stage| bytes(stage, kind) == bytes(0, kind)), "{kind:?} changes with the stage");
    }
    let [none, optimizer, gradients, parameters] = at_stage.map(|memory| memory.bytes_per_rank());
    assert!(optimizer <= none);
    let copies = model.config.at_stage(3).uses_slots();
    assert!(copies || parameters <= gradients);
}

/// Evaluation never needs a slot that training does not have.
fn assert_evaluations_fit(plan: &Plan) {
    for pipeline in 0..plan.pipeline_stages.len() {
        let slots = plan.tables().activation_slots(pipeline);
        let of_op = |op: &zero_plan::Op| match *op {
            zero_plan::Op::Forward { slot, .. } => Some(slot),
            _ => None,
        };
        assert!(plan.pipeline_stages[pipeline].ops(Pass::Evaluate).iter().filter_map(of_op).all(|slot| slot < slots));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_layout_covers_parameters_and_keeps_regions_apart(model in models(48)) {
        model.plan().with(|plan| {
            assert_sound(plan);
            assert_evaluations_fit(plan);
        });
    }

    #[test]
    fn memory_does_not_grow_with_the_stage(model in models(48)) {
        assert_stages_compare(&model);
    }
}

#[test]
fn only_what_others_read_is_shared() {
    let shared = |config: Config, tied| {
        Model::new(config, &[32; 3], tied).plan().with(|plan| {
            let of_pipeline_stage = |memory: &Memory| -> Vec<Kind> {
                let regions = Kind::ALL.map(|kind| memory.region(kind)).into_iter();
                let shared = regions.filter(|region| region.bytes > 0 && region.home != Home::Private);
                shared.map(|region| region.kind).collect()
            };
            plan.pipeline_stages
                .iter()
                .map(|pipeline_stage| of_pipeline_stage(&pipeline_stage.memory))
                .collect::<Vec<_>>()
        })
    };
    for (stage, tied) in [(0, None), (0, Some(0)), (1, None), (2, Some(0))] {
        let alone = Config { mesh: mesh(1, 1, 1), micro_batches: 2, ..config(stage) };
        assert_eq!(shared(alone, tied), [[Kind::Outgoing; 0]], "stage {stage}, tied to {tied:?}");
    }
    let replicas = Config { mesh: mesh(1, 1, 2), micro_batches: 2, ..config(0) };
    assert_eq!(shared(replicas, None), [[Kind::Partial, Kind::Reduced]]);
    let mirrored = Config { mesh: mesh(2, 1, 1), ..config(0) };
    assert_eq!(shared(mirrored, Some(0)), [[Kind::Parameters, Kind::Gradients, Kind::Outgoing]; 2]);
}
