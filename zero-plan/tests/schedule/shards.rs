//! Shards: plans that keep each rank's shard of the parameters outside the device. A shard is fetched for each gather, and
//! schedules with one fault in that are refused.

use std::collections::BTreeMap;

use zero_plan::{Config, Home, Kind, Offload, Op, Pass, TierKind, TransportKind, prove_ranks};

use crate::model::{Model, ON_DISK, config, mesh, models_with_offloaded_parameters};
use crate::mutants::Edit;
use crate::tiers::{edits, on_gpus};

/// In each pass, a shard is fetched for each gather, in the order of gathers, into slots that rotate, at most two ahead.
#[test]
fn every_gather_has_a_shard_that_was_fetched_for_it() {
    for model in models_with_offloaded_parameters() {
        model.plan().with(|plan| {
            for stage in plan.pipeline_stages {
                for ops in [stage.step, stage.evaluation] {
                    let (mut fetched, mut gathered) = (Vec::new(), Vec::new());
                    for &op in ops {
                        match op {
                            Op::FetchShard { unit, slot } => {
                                assert_eq!(slot, fetched.len() % 2);
                                fetched.push(unit);
                            }
                            Op::Gather { unit, .. } => {
                                assert_eq!(fetched.get(gathered.len()), Some(&unit), "{:?}", plan.config);
                                gathered.push(unit);
                            }
                            _ => {}
                        }
                        assert!(fetched.len() <= gathered.len() + 2);
                    }
                    assert_eq!(fetched, gathered);
                    assert!(!gathered.is_empty());
                }
            }
        });
    }
}

/// On GPUs, a shard is fetched right before its gather, into the slot that goes with the slot for gathered parameters.
#[test]
fn devices_fetch_shards_right_before_their_gathers() {
    for model in models_with_offloaded_parameters() {
        on_gpus(model, TransportKind::Peer).plan().with(|plan| {
            for (pipeline, stage) in plan.pipeline_stages.iter().enumerate() {
                for ops in [stage.step, stage.evaluation] {
                    for pair in ops.windows(2) {
                        let fetched =
                            if let Op::FetchShard { unit, slot } = pair[0] { Some((unit, slot)) } else { None };
                        let gathered = if let Op::Gather { unit, slot } = pair[1] { Some((unit, slot)) } else { None };
                        assert_eq!(fetched, gathered, "{:?}", plan.config);
                    }
                    assert!(ops.iter().any(|op| matches!(op, Op::FetchShard { .. })));
                }
                let own = plan.places(plan.config.mesh.coordinates(plan.first_rank(pipeline)));
                let slots = stage.step.iter().filter_map(|op| op.slot().filter(|_| matches!(op, Op::Gather { .. })));
                assert_eq!(own.shard_slots(), slots.max().expect("a gather") + 1);
                assert_eq!(own.memory.region(Kind::Parameters).home, Home::Host);
            }
        });
    }
}

/// A rank of two has 10,000 elements of each unit, and some padding: 5 blocks of 2048. Memory has two shards, two slots for
/// gathered parameters, of which it holds half, and the window.
#[test]
fn an_arena_has_slots_in_place_of_the_parameters() {
    let parameters = |parameters| {
        let offload = Offload { parameters, ..ON_DISK };
        let config = Config { offload, prefetch: 1, transport: TransportKind::Shm, ..config(3) };
        Model::new(config, &[20_000; 12], None).plan().with(|plan| {
            let memory = plan.pipeline_stages[0].memory;
            let bytes = |kind| memory.region(kind).bytes;
            let on_device = if parameters == TierKind::Device { bytes(Kind::Parameters) } else { 0 };
            (on_device, bytes(Kind::Gathered), bytes(Kind::Shards), bytes(Kind::ParametersWindow))
        })
    };
    let (whole, ..) = parameters(TierKind::Device);
    assert!(whole >= 12 * 10_000 * 4);
    let (none, gathered, shards, window) = parameters(TierKind::Disk);
    assert_eq!((none, shards, window), (0, 2 * 5 * 2048 * 4, 3 * 8192));
    assert_eq!(gathered, whole / 12 * 2);
}

/// A step or an evaluation without one fetch of a shard, with one more, with another in its place, or with two ops exchanged.
#[test]
fn a_fault_in_a_fetch_of_a_shard_is_found() {
    let mut refused = 0;
    let offload = Offload { parameters: TierKind::Disk, prefetch: 0, ..ON_DISK };
    let config = Config { mesh: mesh(1, 1, 1), offload, prefetch: 1, ..config(3) };
    Model::new(config, &[90, 7, 70], None).plan().with(|plan| {
        for pass in [Pass::Train, Pass::Evaluate] {
            let ops = plan.pipeline_stages[0].ops(pass);
            for edit in edits(plan, ops, |op| matches!(op, Op::FetchShard { .. })) {
                let edited = edit.apply(ops);
                let is_refused = prove_ranks(plan, pass, &[&edited]).is_err();
                let is_same = || by_shard_slot(&edited) == by_shard_slot(ops);
                assert!(is_refused || is_same() && matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        }
    });
    assert!(refused > 300, "{refused}");
}

/// The ops on each slot for fetched shards, in order.
pub fn by_shard_slot(ops: &[Op]) -> BTreeMap<usize, Vec<Op>> {
    let (mut slots, mut gathered) = (BTreeMap::<usize, Vec<Op>>::new(), 0);
    for &op in ops {
        match op {
            Op::FetchShard { slot, .. } => slots.entry(slot).or_default().push(op),
            Op::Gather { .. } => {
                slots.entry(gathered % Offload::SHARD_SLOTS).or_default().push(op);
                gathered += 1;
            }
            _ => {}
        }
    }
    slots
}
