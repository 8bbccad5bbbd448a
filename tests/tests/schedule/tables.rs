//! Tables: layouts with one number changed. The check objects to each, but for those that a rule here excuses; and of
//! those the simulator says that they train as before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zero_plan::unit::ALIGNMENT;
use zero_plan::{Bucket, Home, Kind, Memory, Placement, Plan};

use crate::model::{models, small_models};
use crate::simulator::{Pace, simulate};

/// The tables of a layout.
#[derive(Clone)]
struct Tables {
    placements: Vec<Placement>,
    buckets: Vec<Bucket>,
    memory: Memory,
}

/// A number of a layout: of a unit, of a bucket, of a region, or of all memory.
#[derive(Clone, Copy, Debug)]
enum Place {
    Start(usize),
    Padded(usize),
    Saved(usize),
    Output(usize),
    BucketOf(usize),
    BucketFirst(usize),
    BucketLast(usize),
    BucketStart(usize),
    BucketElements(usize),
    Staging(usize),
    StagingSlot(usize),
    RegionOffset(Kind),
    RegionElements(Kind),
    Private,
    Shared,
    Common,
    GatherSlot,
}

impl Tables {
    fn of(plan: &Plan) -> Self {
        Self { placements: plan.placements.to_vec(), buckets: plan.buckets.to_vec(), memory: plan.memory }
    }

    fn in_plan<'a>(&'a self, plan: &Plan<'a>) -> Plan<'a> {
        Plan { placements: &self.placements, buckets: &self.buckets, memory: self.memory, ..*plan }
    }

    fn places(&self) -> Vec<Place> {
        use Place::*;
        let mut places = vec![Private, Shared, Common, GatherSlot];
        for unit in 0..self.placements.len() {
            places.extend([Start(unit), Padded(unit), Saved(unit), Output(unit), BucketOf(unit)]);
        }
        for bucket in 0..self.buckets.len() {
            places.extend([BucketFirst(bucket), BucketLast(bucket), BucketStart(bucket), BucketElements(bucket)]);
            places.push(Staging(bucket));
            places.extend(self.buckets[bucket].slot.map(|_| StagingSlot(bucket)));
        }
        places.extend(Kind::ALL.into_iter().flat_map(|kind| [RegionOffset(kind), RegionElements(kind)]));
        places
    }

    fn number(&mut self, place: Place) -> &mut usize {
        match place {
            Place::Start(unit) => &mut self.placements[unit].start,
            Place::Padded(unit) => &mut self.placements[unit].padded,
            Place::Saved(unit) => &mut self.placements[unit].saved,
            Place::Output(unit) => &mut self.placements[unit].output,
            Place::BucketOf(unit) => &mut self.placements[unit].bucket,
            Place::BucketFirst(bucket) => &mut self.buckets[bucket].first,
            Place::BucketLast(bucket) => &mut self.buckets[bucket].last,
            Place::BucketStart(bucket) => &mut self.buckets[bucket].start,
            Place::BucketElements(bucket) => &mut self.buckets[bucket].elements,
            Place::Staging(bucket) => &mut self.buckets[bucket].staging,
            Place::StagingSlot(bucket) => self.buckets[bucket].slot.as_mut().expect("a bucket with a slot"),
            Place::RegionOffset(kind) => &mut self.memory.regions[kind as usize].offset,
            Place::RegionElements(kind) => &mut self.memory.regions[kind as usize].elements,
            Place::Private => &mut self.memory.private,
            Place::Shared => &mut self.memory.shared,
            Place::Common => &mut self.memory.common,
            Place::GatherSlot => &mut self.memory.slot,
        }
    }
}

/// Why a layout is as good as before when the number at `place` is `to` and no longer `from`, if it is.
fn excuse(plan: &Plan, place: Place, from: usize, to: usize) -> Option<&'static str> {
    match place {
        Place::Private | Place::Shared | Place::Common | Place::GatherSlot if to > from => Some("room to spare"),
        Place::RegionElements(kind) if to < from && to >= needed(plan, kind)? => Some("less room to spare"),
        Place::StagingSlot(bucket) if !shares_slot(plan, bucket, from) && !shares_slot(plan, bucket, to) => {
            Some("another name for a slot that one bucket has to itself")
        }
        Place::Staging(bucket) if plan.buckets[bucket].elements == 0 => Some("the staging of a bucket of nothing"),
        Place::Staging(bucket) if !shares_slot(plan, bucket, plan.buckets[bucket].slot?) => {
            Some("staging that one bucket has to itself, elsewhere in its slot")
        }
        _ => None,
    }
}

/// Whether another bucket has staging slot `slot`.
fn shares_slot(plan: &Plan, bucket: usize, slot: usize) -> bool {
    (0..plan.buckets.len()).any(|other| other != bucket && plan.buckets[other].slot == Some(slot))
}

/// What is put into the regions whose sizes are rounded up, or made for larger buckets than the one that lies last.
fn needed(plan: &Plan, kind: Kind) -> Option<usize> {
    match kind {
        Kind::Gradients => plan.buckets.iter().map(|bucket| bucket.staging + bucket.elements).max(),
        Kind::Activations => plan.placements.iter().zip(plan.units).map(|(at, unit)| at.output + unit.output).max(),
        Kind::Workspace => plan.units.iter().map(|unit| unit.workspace).max(),
        Kind::Batch => Some(plan.units[0].input.next_multiple_of(ALIGNMENT) + plan.config.tokens()),
        _ => None,
    }
}

/// Changes every number of a layout by one and by a cache line; counts what the check objects to, and the excuses.
fn change_each_number(plan: &Plan) -> (usize, BTreeMap<&'static str, usize>) {
    let tables = Tables::of(plan);
    let (mut rejected, mut excused) = (0, BTreeMap::new());
    for place in tables.places() {
        let from = *tables.clone().number(place);
        let values = [Some(from + 1), from.checked_sub(1), Some(from + ALIGNMENT), from.checked_sub(ALIGNMENT)];
        for to in values.into_iter().flatten() {
            let mut changed = tables.clone();
            *changed.number(place) = to;
            let changed = changed.in_plan(plan);
            if changed.check().is_err() {
                rejected += 1;
                continue;
            }
            let Some(rule) = excuse(plan, place, from, to) else {
                panic!("{to} for {from} survives as {place:?}: {plan:#?}")
            };
            for pace in Pace::ALL {
                assert_eq!(
                    simulate(&changed, pace),
                    Ok(()),
                    "{to} for {from} as {place:?}, excused by: {rule}; {plan:#?}"
                );
            }
            *excused.entry(rule).or_default() += 1;
        }
    }
    (rejected, excused)
}

#[test]
fn every_number_of_a_layout_matters() {
    let (mut rejected, mut excused) = (0, BTreeMap::<_, usize>::new());
    for model in small_models() {
        let (more, rules) = change_each_number(&model.plan().as_plan());
        rejected += more;
        for (rule, count) in rules {
            *excused.entry(rule).or_default() += count;
        }
    }
    assert!(rejected > 10_000);
    assert_eq!(excused.len(), 4, "{excused:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_number_of_a_random_layout_matters(model in models(6)) {
        change_each_number(&model.plan().as_plan());
    }
}

#[test]
fn regions_lie_where_those_who_read_them_can() {
    for model in small_models() {
        let plan = model.plan();
        let plan = plan.as_plan();
        for kind in Kind::ALL {
            for home in [Home::Private, Home::Shared, Home::Common] {
                let mut memory = plan.memory;
                let was = core::mem::replace(&mut memory.regions[kind as usize].home, home);
                pack(&mut memory, plan.config.ranks);
                assert_eq!(Plan { memory, ..plan }.check().is_ok(), home == was, "{kind:?} in {home:?}, not {was:?}");
            }
        }
    }
}

/// Puts regions behind one another in their homes, so that nothing but the homes can be wrong.
fn pack(memory: &mut Memory, ranks: usize) {
    (memory.private, memory.shared, memory.common) = (0, 0, 0);
    for region in &mut memory.regions {
        let (end, elements) = match region.home {
            Home::Private => (&mut memory.private, region.elements),
            Home::Shared => (&mut memory.shared, region.elements),
            Home::Common => (&mut memory.common, region.elements * ranks),
        };
        region.offset = *end;
        *end += elements;
    }
}
