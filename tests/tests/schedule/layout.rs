//! Layout: what must hold of where things lie, worked out anew from sizes. Shares nothing with the check.

use std::ops::Range;

use zero_plan::unit::ALIGNMENT;
use zero_plan::{Config, Home, Kind, Memory, Plan, Transport, Unit};

use crate::model::Model;

/// That stretches lie in `0..end` and that no two of them overlap.
fn assert_disjoint(mut stretches: Vec<Range<usize>>, end: usize) {
    stretches.retain(|stretch| !stretch.is_empty());
    stretches.sort_by_key(|stretch| stretch.start);
    for pair in stretches.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
    }
    assert!(stretches.last().is_none_or(|last| last.end <= end), "{stretches:?} leave 0..{end}");
}

fn stretch(start: usize, len: usize) -> Range<usize> {
    assert_eq!(start % ALIGNMENT, 0, "{start} is not on a cache line");
    start..start + len
}

/// All facts of this file but how stages compare.
pub fn assert_sound(plan: &Plan) {
    assert_owners(plan);
    assert_activations(plan);
    assert_buckets(plan);
    assert_staging(plan);
    assert_regions(plan);
    assert_sizes(plan);
}

/// Shards are equal, and every parameter is in exactly one, in a unit of its own.
fn assert_owners(plan: &Plan) {
    let ranks = plan.config.ranks;
    let mut owners = vec![None; plan.padded()];
    for (unit, at) in plan.units.iter().zip(plan.placements) {
        assert_eq!(at.shard(ranks) * ranks, at.padded);
        assert!((unit.params..unit.params + ranks * ALIGNMENT).contains(&at.padded), "padded more than needed");
        for rank in 0..ranks {
            for element in stretch(at.start + rank * at.shard(ranks), at.shard(ranks)) {
                assert_eq!(owners[element].replace(rank), None, "{element} has two owners");
            }
        }
        // All that its layer takes lies in the one flat buffer.
        assert!(unit.takes <= plan.placements[unit.source].padded);
    }
    assert!(owners.iter().all(Option::is_some), "an element without an owner");
    assert_eq!(plan.params(), plan.units.iter().map(|unit| unit.params).sum::<usize>());
}

fn assert_activations(plan: &Plan) {
    let mut stretches = Vec::new();
    for (unit, at) in plan.units.iter().zip(plan.placements) {
        stretches.extend([stretch(at.saved, unit.saved), stretch(at.output, unit.output)]);
    }
    assert_disjoint(stretches, plan.memory.region(Kind::Activations).elements);
}

/// Buckets tile the units from the last to the first, each as long as `bucket_bytes` lets it be.
fn assert_buckets(plan: &Plan) {
    let padded = |units: Range<usize>| units.map(|unit| plan.placements[unit].padded).sum::<usize>();
    let mut end = plan.units.len();
    for (index, bucket) in plan.buckets.iter().enumerate() {
        let units = bucket.first..end;
        assert_eq!(bucket.last + 1, end);
        assert!(!units.is_empty());
        assert_eq!(bucket.start, padded(0..bucket.first));
        assert_eq!(bucket.elements, padded(units.clone()));
        assert!(units.clone().all(|unit| plan.placements[unit].bucket == index));
        let owners = units.filter(|&unit| plan.placements[unit].padded > 0).count();
        assert!(owners <= 1 || bucket.elements * 4 <= plan.config.bucket_bytes, "a bucket that is too large");
        if bucket.first > 0 {
            let joined = padded(bucket.first - 1..end);
            assert!(bucket.elements > 0 && joined * 4 > plan.config.bucket_bytes, "a bucket that could be larger");
        }
        end = bucket.first;
    }
    assert_eq!(end, 0, "units without a bucket");
}

/// Buckets that share a slot lie at one place, all others apart; below stage 2 no bucket shares.
fn assert_staging(plan: &Plan) {
    let region = plan.memory.region(Kind::Gradients).elements;
    let mut apart = Vec::new();
    for (index, bucket) in plan.buckets.iter().enumerate() {
        assert_eq!(bucket.slot.is_some(), plan.config.stage >= 2 && bucket.elements > 0);
        let place = stretch(bucket.staging, bucket.elements);
        assert!(place.end <= region);
        let shares = |other: &&zero_plan::Bucket| bucket.slot.is_some() && other.slot == bucket.slot;
        match plan.buckets[..index].iter().find(shares) {
            Some(other) => assert_eq!(bucket.staging, other.staging),
            None => {
                let sharing = plan.buckets[index..].iter().filter(shares).map(|other| other.elements);
                apart.push(place.start..place.start + sharing.max().unwrap_or(bucket.elements));
            }
        }
    }
    assert_disjoint(apart, region);
}

/// What homes hold is in them, on cache lines, and apart.
fn assert_regions(plan: &Plan) {
    let memory = &plan.memory;
    let shares = |home| if home == Home::Common { plan.config.ranks } else { 1 };
    for (home, size) in [(Home::Private, memory.private), (Home::Shared, memory.shared), (Home::Common, memory.common)]
    {
        let regions = memory.regions.iter().filter(|region| region.home == home);
        let stretches: Vec<_> = regions.map(|region| stretch(region.offset, region.elements * shares(home))).collect();
        assert_eq!(stretches.iter().map(Range::len).sum::<usize>(), size, "{home:?} has room that nobody uses");
        assert_disjoint(stretches, size);
    }
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(memory.regions[index].kind, kind);
    }
}

/// The size of each region, from the table of what each stage keeps.
fn assert_sizes(plan: &Plan) {
    let (config, units) = (&plan.config, plan.units);
    let line = |elements: usize| elements.next_multiple_of(ALIGNMENT);
    let flat: usize = plan.placements.iter().map(|at| at.padded).sum();
    let shard = flat / config.ranks;
    let owners = plan.placements.iter().filter(|at| at.padded > 0);
    let slots = owners.clone().count().min(config.prefetch + 1);
    let slot = owners.map(|at| at.padded).max().unwrap_or(0);
    let boundary = units.iter().flat_map(|unit| [unit.input, unit.output]).max().expect("a model has units");
    let stage_3 = config.stage == 3;
    let has_slots = stage_3 && config.transport == Transport::Local;
    let apart = config.stage >= 2 || config.micro_batches > 1;
    let expected = [
        (Kind::Parameters, if stage_3 { shard } else { flat }),
        (Kind::Gathered, if has_slots { slots * slot } else { 0 }),
        (Kind::Reduced, if apart { shard } else { 0 }),
        (Kind::Optimizer, 2 * if config.stage >= 1 { shard } else { flat }),
        (Kind::Activations, units.iter().map(|unit| line(unit.saved) + line(unit.output)).sum()),
        (Kind::ActivationGradients, 2 * line(boundary)),
        (Kind::Workspace, line(units.iter().map(|unit| unit.workspace).max().expect("a model has units"))),
        (Kind::Batch, line(line(units[0].input) + config.sequences * config.length)),
    ];
    for (kind, elements) in expected {
        assert_eq!(plan.memory.region(kind).elements, elements, "{kind:?}");
    }
    let gradients = plan.memory.region(Kind::Gradients).elements;
    if config.stage < 2 {
        assert_eq!(gradients, flat);
    } else {
        assert_eq!(gradients, staging_slots(plan) * plan.buckets.iter().map(|b| b.elements).max().unwrap_or(0));
    }
    let total: usize = plan.memory.regions.iter().map(|region| region.elements).sum();
    assert_eq!(plan.memory.bytes_per_rank(), 4 * total);
}

/// Two slots for the buckets in turn, and one for each bucket that waits for a tied unit.
fn staging_slots(plan: &Plan) -> usize {
    let waits = |bucket: &&zero_plan::Bucket| {
        let owned = bucket.first..=bucket.last;
        plan.units.iter().enumerate().any(|(i, unit)| unit.source != i && owned.contains(&unit.source))
    };
    let staged = plan.buckets.iter().filter(|bucket| bucket.elements > 0);
    let waiting = staged.clone().filter(waits).count();
    waiting + (staged.count() - waiting).min(2)
}

/// A stage needs no more memory than the one before it, with two exceptions. Stage 2 replaces gradients of every unit by
/// staging for a few buckets and a shard of the sums: with few large buckets that is more. Stage 3 replaces a replica of
/// the parameters by a shard, and on a transport that copies, by slots.
pub fn assert_stages_compare(model: &Model) {
    let at = |stage: u8| Memory::of(&model.config.at_stage(stage), &model.units);
    let bytes = |stage: u8| at(stage).bytes_per_rank();
    let elements = |stage: u8, kind: Kind| at(stage).region(kind).elements;
    let flat = flat(&model.config, &model.units);
    let shard = flat / model.config.ranks;
    assert_eq!(bytes(0) - bytes(1), 4 * 2 * (flat - shard), "stage 1 saves all but a shard of the two moments");
    let kept = flat + elements(1, Kind::Reduced);
    let staged = elements(2, Kind::Gradients) + shard;
    assert_eq!(bytes(1) + 4 * staged, bytes(2) + 4 * kept);
    assert_eq!(bytes(2) + 4 * (shard + elements(3, Kind::Gathered)), bytes(3) + 4 * flat);
    if model.config.transport == Transport::Shm {
        assert!(bytes(3) <= bytes(2));
    }
}

fn flat(config: &Config, units: &[Unit]) -> usize {
    units.iter().map(|unit| unit.params.next_multiple_of(config.ranks * ALIGNMENT)).sum()
}
