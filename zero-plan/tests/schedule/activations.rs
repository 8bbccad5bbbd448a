//! Activations: plans that keep them outside the device. Which units travel, where to, and what that saves is worked out
//! here from sizes alone, and schedules with one fault in a trip are refused.

use std::collections::BTreeMap;
use std::ops::Range;

use zero_plan::{
    Config, Home, Kind, Offload, Op, Pass, Plan, Recompute, TierBytes, TierKind, TransportKind, prove, prove_ranks,
};

use crate::model::{Model, at_use, config, mesh, models_with_offloaded_activations};
use crate::mutants::Edit;
use crate::tiers::{disjoint, edits};

/// Every op on activations, including one beyond the last unit, micro-batch and slot of each.
pub fn vocabulary(plan: &Plan) -> Vec<Op> {
    let batches = 0..=plan.config.micro_batches;
    let of_unit = |unit| {
        batches.clone().flat_map(move |micro_batch| {
            (0..2).flat_map(move |slot| {
                [Op::StoreActivations { unit, micro_batch, slot }, Op::FetchActivations { unit, micro_batch, slot }]
            })
        })
    };
    (0..=plan.units.len()).flat_map(of_unit).collect()
}

fn is_of_activations(op: &Op) -> bool {
    matches!(op, Op::StoreActivations { .. } | Op::FetchActivations { .. })
}

#[test]
fn plans_with_activations_in_a_tier_are_proven() {
    let models = models_with_offloaded_activations();
    let later = at_use(models.clone().into_iter().filter(|model| model.config.updates_in_pieces()));
    assert!(later.len() > 1, "{}", later.len());
    let on_gpus = models.iter().flat_map(|model| {
        [TransportKind::Peer, TransportKind::Nccl].map(|transport| {
            let mut model = model.clone().on_gpus(transport);
            let Offload { optimizer, gradients, activations, .. } = &mut model.config.offload;
            [optimizer, gradients, activations]
                .into_iter()
                .filter(|tier| **tier == TierKind::Disk)
                .for_each(|tier| *tier = TierKind::Host);
            model.config.offload.parameters = TierKind::Device;
            model
        })
    });
    for model in models.iter().cloned().chain(later).chain(on_gpus) {
        model.plan().with(|plan| {
            assert_eq!(plan.check(), Ok(()), "{:?}", plan.config);
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {:?}", plan.config));
        });
    }
}

/// The units whose activations travel: all but those of the last, and of as many before it as there are places.
fn travelling(plan: &Plan) -> Range<usize> {
    0..plan.units.len() - 1 - (plan.config.offload.prefetch + 2)
}

/// In each micro-batch they are stored in the order of forward, each right after its forward, and fetched in the order of
/// backward, each as soon as its place is free. An evaluation moves none.
#[test]
fn activations_make_one_trip_in_each_micro_batch() {
    for model in models_with_offloaded_activations() {
        model.plan().with(|plan| {
            let stage = &plan.pipeline_stages[0];
            let (mut trips, mut expected) = (Vec::new(), Vec::new());
            for (at, &op) in stage.step.iter().enumerate() {
                match op {
                    Op::StoreActivations { unit, micro_batch, slot } => {
                        trips.push((micro_batch, true, unit));
                        assert_eq!(stage.step[at - 1], Op::Forward { unit, micro_batch, slot });
                    }
                    Op::FetchActivations { unit, micro_batch, slot } => {
                        trips.push((micro_batch, false, unit));
                        // A unit that is recomputed keeps its output alone, which the unit after it reads.
                        let before = unit + plan.config.offload.prefetch + 2;
                        let unit = before + usize::from(plan.config.recomputes(plan.units, before));
                        let last = stage.step[..at].iter().rfind(|op| !matches!(op, Op::FetchActivations { .. }));
                        assert_eq!(last, Some(&Op::Backward { unit, micro_batch, slot }));
                    }
                    _ => {}
                }
            }
            assert!(!travelling(plan).is_empty());
            for micro_batch in 0..plan.config.micro_batches {
                expected.extend(travelling(plan).map(|unit| (micro_batch, true, unit)));
                expected.extend(travelling(plan).rev().map(|unit| (micro_batch, false, unit)));
            }
            assert_eq!(trips, expected, "{:?}", plan.config);
            assert!(!stage.evaluation.iter().any(is_of_activations));
        });
    }
}

/// Twelve units save 20,000 bytes each, and make 3,000 bytes of output: six blocks together, or one if they are
/// recomputed. The device keeps the inputs, targets and activations of the last unit, and then places in turn.
#[test]
fn an_arena_has_places_in_turn_instead_of_all_activations() {
    let plan = |prefetch, activations, recompute| {
        let offload = Offload { activations, prefetch, ..Offload::NONE };
        let config = Config { mesh: mesh(1, 1, 1), micro_batches: 3, offload, recompute, ..config(0) };
        let mut model = Model::new(config, &[50; 12], None);
        for unit in &mut model.units {
            (unit.saved_bytes, unit.output_bytes, unit.input_bytes) = (20_000, 3_000, 3_000);
        }
        model.plan()
    };
    let activations = |plan: &Plan| plan.pipeline_stages[0].memory.region(Kind::Activations).bytes;
    let line = |bytes: usize| bytes.next_multiple_of(64);
    let entering = line(3_000) + line(25);
    let whole = plan(0, TierKind::Device, Recompute::None).with(activations);
    assert_eq!(whole, entering + 12 * (line(20_000) + line(3_000)));
    for (recompute, blocks) in [(Recompute::None, 6), (Recompute::Every(1), 1)] {
        for prefetch in [0, 1, 4, 8] {
            plan(prefetch, TierKind::Disk, recompute).with(|plan| {
                let first = (entering + line(20_000) + line(3_000)).next_multiple_of(4096);
                let turns = prefetch + 2;
                assert_eq!(activations(plan), first + turns * blocks * 4096);
                let stored = 11 - turns;
                let on_disk = plan.pipeline_stages[0].memory.bytes_of(Home::Disk);
                assert_eq!(on_disk, stored * blocks * 4096);
                let a_step = 3 * on_disk;
                assert_eq!(TierBytes::of(plan, 0), TierBytes { read: a_step, written: a_step });
                let own = plan.places(plan.config.mesh.coordinates(0));
                let kept = (0..stored).map(|unit| own.activation_blocks(unit, 0).expect("a trip").0);
                let kept: Vec<_> = kept.map(|place| place.offset_bytes..place.end_bytes()).collect();
                assert!(kept.iter().all(|range| range.start.is_multiple_of(4096) && range.len() == blocks * 4096));
                assert!(disjoint(kept));
                assert!((stored..12).all(|unit| own.activation_blocks(unit, 0).is_none()));
            });
        }
    }
}

/// A step without one op on activations, with one more, with another in its place, or with two ops exchanged.
#[test]
fn a_fault_in_a_trip_of_activations_is_found() {
    let mut refused = 0;
    for (recompute, micro_batches) in [(Recompute::None, 2), (Recompute::Every(1), 1)] {
        let offload = Offload { activations: TierKind::Disk, ..Offload::NONE };
        let config = Config { mesh: mesh(1, 1, 1), micro_batches, offload, recompute, ..config(0) };
        Model::new(config, &[9, 7, 5, 6, 8], None).plan().with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            for edit in edits(plan, ops, is_of_activations) {
                let edited = edit.apply(ops);
                let is_refused = prove_ranks(plan, Pass::Train, &[&edited]).is_err();
                let is_same = || by_place(plan, &edited) == by_place(plan, ops);
                assert!(is_refused || is_same() && matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        });
    }
    assert!(refused > 1_000, "{refused}");
}

/// The ops on each place that units take turns with, in order.
fn by_place(plan: &Plan, ops: &[Op]) -> BTreeMap<usize, Vec<Op>> {
    let mut places: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
    let (turns, last) = (plan.config.offload.prefetch + 2, plan.units.len() - 1);
    for &op in ops {
        let before = |unit: usize| unit.wrapping_sub(1);
        // A forward also reads the place of the unit before it, as does the store from there.
        let uses = match op {
            Op::Backward { unit, .. } if plan.config.recomputes(plan.units, unit) => vec![before(unit)],
            Op::Backward { unit, .. } => vec![unit, before(unit)],
            Op::Recompute { unit, .. } => vec![before(unit)],
            Op::Forward { unit, .. } | Op::StoreActivations { unit, .. } | Op::FetchActivations { unit, .. } => {
                vec![unit]
            }
            _ => Vec::new(),
        };
        for unit in uses.iter().filter(|&&unit| unit < last) {
            places.entry(unit % turns).or_default().push(op);
        }
    }
    places
}
