//! Updates on the host: plans in which the host of a GPU updates what it keeps. The device stores sums there and fetches
//! parameters, and schedules with one fault in that are refused.

use zero_plan::{
    Config, Home, Kind, Offload, Op, Pass, Plan, TierBytes, TierKind, TransportKind, UpdatePlace, Width, prove_ranks,
};

use crate::model::{Model, ON_DISK, config, mesh, models_with_offloaded_sums, offloaded_models, precision};
use crate::tiers::{assert_proven, by_slot, edits, trip};

const ON_HOST: Offload = Offload { optimizer: TierKind::Host, update_on: UpdatePlace::Host, ..ON_DISK };

/// Small models of which hosts update the parameters.
fn models() -> Vec<Model> {
    let on_gpus = |mut model: Model| {
        let gradients = if model.config.offloads_gradients() { TierKind::Host } else { TierKind::Device };
        model.config.offload = Offload { gradients, prefetch: model.config.offload.prefetch, ..ON_HOST };
        [TransportKind::Peer, TransportKind::Nccl].map(|transport| model.clone().on_gpus(transport))
    };
    offloaded_models().into_iter().chain(models_with_offloaded_sums()).flat_map(on_gpus).collect()
}

#[test]
fn plans_with_updates_on_hosts_are_proven() {
    assert_proven(models());
}

/// Each piece is stored, updated and fetched once, in the same order, after all sums are made; it is not stored if the host
/// has all that it needs.
#[test]
fn every_piece_goes_to_the_host_and_comes_back() {
    let stored = |op| if let Op::Store { unit, piece } = op { Some((unit, piece)) } else { None };
    let updated = |op| if let Op::Update { unit, piece } = op { Some((unit, piece?)) } else { None };
    let fetched = |op| if let Op::Fetch { unit, piece } = op { Some((unit, piece)) } else { None };
    let mut kept_there = 0;
    for model in models() {
        model.plan().with(|plan| {
            let is_there = plan.config.offloads_gradients() && plan.config.precision.has_master_copy();
            kept_there += usize::from(is_there);
            for stage in plan.pipeline_stages {
                let all = trip(stage.step, updated);
                assert_eq!(trip(stage.step, fetched), all, "{:?}", plan.config);
                assert_eq!(trip(stage.step, stored), if is_there { Vec::new() } else { all }, "{:?}", plan.config);
                let of_pieces = |op: &Op| op.traits().piece.is_some();
                assert!(!stage.evaluation.iter().any(of_pieces));
                let first = stage.step.iter().position(of_pieces).unwrap_or(stage.step.len());
                let sums = |op: &Op| matches!(op, Op::Settle { .. } | Op::Combine { .. } | Op::Spread { .. });
                assert!(!stage.step[first..].iter().any(sums));
            }
        });
    }
    assert!(kept_there > 0);
}

/// Sums and parameters of 9088 elements, of which a rank has 4608 with padding, and moments that stay where they are. The window is in the
/// memory of the host, and the device has no part of it.
#[test]
fn windows_are_on_the_host() {
    let counts = |gradients, params| {
        let precision = precision(params, Width::F32);
        let config = Config { offload: Offload { gradients, ..ON_HOST }, precision, ..config(2) };
        Model::new(config, &[9088, 0], None).on_gpus(TransportKind::Peer).plan().with(|plan| {
            let memory = &plan.pipeline_stages[0].memory;
            let bytes = |kind| memory.region(kind).bytes;
            let windows = [Kind::SumsWindow, Kind::ParametersWindow];
            assert!(windows.iter().all(|&kind| memory.region(kind).home == Home::Host));
            assert_eq!((bytes(Kind::OptimizerWindow), bytes(Kind::MasterWindow), bytes(Kind::StepWords)), (0, 0, 256));
            (TierBytes::of(plan, 1), windows.map(bytes))
        })
    };
    let [sums, params] = [4608 * 4, 4608 * 2];
    let (of_copies, windows) = counts(TierKind::Device, Width::BF16);
    assert_eq!(of_copies, TierBytes { read: params, written: sums });
    assert_eq!(windows, [3 * 8192, 3 * 4096]);
    let (of_params, _) = counts(TierKind::Device, Width::F32);
    assert_eq!(of_params, TierBytes { read: 2 * params, written: sums + 2 * params });
    let (of_sums, windows) = counts(TierKind::Host, Width::BF16);
    assert_eq!((of_sums.read, windows[0]), (params, 0));
}

/// The pieces of each unit, in the order in which they are stored, and in that of their updates.
fn by_unit(ops: &[Op]) -> Vec<[Vec<usize>; 2]> {
    let of_unit = |of| {
        let stored =
            |&op: &Op| if let Op::Store { unit, piece } = op { (unit == of).then_some(piece.index) } else { None };
        let updated =
            |&op: &Op| if let Op::Update { unit, piece } = op { (unit == of).then_some(piece?.index) } else { None };
        [ops.iter().filter_map(stored).collect(), ops.iter().filter_map(updated).collect()]
    };
    (0..3).map(of_unit).collect()
}

/// A step without one op on pieces, with one more, with another in its place, or with two exchanged. Accepted are only
/// exchanges after which each slot sees the same ops.
#[test]
fn a_fault_in_an_update_on_the_host_is_found() {
    let mut refused = 0;
    for (gradients, stage) in [(TierKind::Device, 0), (TierKind::Device, 3), (TierKind::Host, 2)] {
        let offload = Offload { gradients, ..ON_HOST };
        let config = Config {
            mesh: mesh(1, 1, 1),
            offload,
            precision: precision(Width::BF16, Width::F32),
            bucket_bytes: 1,
            ..config(stage)
        };
        Model::new(config, &[9000, 7, 2100], None).on_gpus(TransportKind::Peer).plan().with(|plan: &Plan| {
            let ops = plan.pipeline_stages[0].step;
            for edit in edits(plan, ops, |op| op.traits().piece.is_some()) {
                let edited = edit.apply(ops);
                let is_refused = prove_ranks(plan, Pass::Train, &[&edited]).is_err();
                let is_same = by_slot(&edited) == by_slot(ops) && by_unit(&edited) == by_unit(ops);
                assert!(is_refused || is_same, "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        });
    }
    assert!(refused > 3_000, "{refused}");
}
