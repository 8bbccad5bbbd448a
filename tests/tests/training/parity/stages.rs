//! Stages: the stage, the transport, the buckets, the prefetch and the number of ranks must not change results.

use zero_core::model::Model;
use zero_engine::Hyper;
use zero_plan::{Config, Mesh, PlanBuf, TransportKind};
use zero_tests::tiny::{InBothWidths, Tied, Untied, Wide};
use zero_tests::training::{CONFIG, HYPER, Outcome, Start, assert_as_planned, noise, train};

use super::{WIDTHS, run};

/// All configurations of a number of ranks and micro-batches.
fn configurations(ranks: usize, micro_batches: usize) -> Vec<Config> {
    let mut all = Vec::new();
    for transport in [TransportKind::Local, TransportKind::Shm] {
        for bucket_bytes in [1, 40_000, usize::MAX] {
            let config = Config { mesh: Mesh::of_zero(ranks), micro_batches, transport, bucket_bytes, ..CONFIG };
            all.extend([0, 1, 2].map(|stage| config.at_stage(stage)));
            all.extend([0, 1, 9].map(|prefetch| Config { stage: 3, prefetch, ..config }));
        }
    }
    all
}

fn stages_agree<M: InBothWidths>() {
    for precision in WIDTHS {
        for (ranks, micro_batches) in [(1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (3, 3), (4, 1), (4, 3)] {
            let plain = run::<M>(Config { mesh: Mesh::of_zero(ranks), micro_batches, precision, ..CONFIG }, 3);
            assert!(plain.norms.iter().all(|&norm| norm > 0.25), "every step clips: {:?}", plain.norms);
            for config in configurations(ranks, micro_batches) {
                let config = Config { precision, ..config };
                assert!(run::<M>(config, 3).bits() == plain.bits(), "{config:?} differs from stage 0");
            }
        }
    }
}

#[test]
fn stages_agree_bit_for_bit() {
    stages_agree::<Untied>();
}

#[test]
fn stages_agree_bit_for_bit_with_tied_weights() {
    stages_agree::<Tied>();
}

pub fn assert_close(one: &Outcome, other: &Outcome, tolerance: f64) {
    for (a, b) in one.losses.iter().zip(&other.losses) {
        assert!((a - b).abs() < tolerance, "losses {a} and {b}");
    }
    // The root mean square, because a single parameter whose gradient is zero except for rounding differs by up to the learning rate.
    let pairs = one.parameters.iter().flatten().zip(other.parameters.iter().flatten());
    let (squares, count) =
        pairs.fold((0.0, 0), |(squares, count), (a, b)| (squares + f64::from(a - b).powi(2), count + 1));
    let distance = (squares / f64::from(count)).sqrt();
    assert!(distance < tolerance, "parameters differ by {distance} (root mean square)");
}

#[test]
fn ranks_and_one_rank_agree_to_rounding_over_20_steps() {
    for stage in 0..4 {
        for ranks in [2, 3, 4] {
            let alone = run::<Untied>(Config { micro_batches: ranks, ..CONFIG.at_stage(stage) }, 20);
            let together = run::<Untied>(Config { mesh: Mesh::of_zero(ranks), ..CONFIG.at_stage(stage) }, 20);
            assert_close(&alone, &together, 2e-4);
        }
    }
}

#[test]
fn two_ranks_agree_with_one_of_twice_the_sequences() {
    let alone = run::<Wide>(Config { sequences: 4, ..CONFIG }, 20);
    let together = run::<Untied>(Config { mesh: Mesh::of_zero(2), ..CONFIG.at_stage(3) }, 20);
    assert_close(&alone, &together, 2e-4);
}

#[test]
fn other_data_or_no_clipping_give_another_result() {
    // Otherwise all of the above could pass by training on nothing.
    let config = Config { mesh: Mesh::of_zero(2), ..CONFIG };
    let one = run::<Untied>(config, 3);
    let other = train(Untied::PROGRAM, config, HYPER, 3, Start::Seed(7), &|_, _, _, ids, targets| {
        ids.fill(1);
        targets.fill(2);
    });
    assert!(one.losses != other.losses);
    let unclipped = train(Untied::PROGRAM, config, Hyper { clip: None, ..HYPER }, 3, Start::Seed(7), &noise(config));
    assert!(one.parameters != unclipped.parameters);
}

/// Trains two steps and compares the bytes that every rank moved and mapped with the plan.
pub fn moved_bytes_and_mappings_are_planned<M: InBothWidths>(config: Config) {
    let outcome = run::<M>(config, 2);
    PlanBuf::new("", config, M::units(config.precision.compute)).with(|plan| {
        for rank in 0..config.mesh.ranks() {
            assert_as_planned(plan, rank, 2, outcome.moved[rank], outcome.mapped_bytes[rank]);
        }
    });
}

#[test]
fn moved_bytes_and_mappings_are_those_of_the_plan() {
    for ranks in 1..=4 {
        for micro_batches in [1, 3] {
            for config in configurations(ranks, micro_batches) {
                let precision = WIDTHS[config.stage as usize % 2];
                moved_bytes_and_mappings_are_planned::<Tied>(Config { precision, ..config });
            }
        }
    }
}

#[test]
fn sent_bytes_are_the_published_volumes() {
    for ranks in [2, 3, 4] {
        for transport in [TransportKind::Local, TransportKind::Shm] {
            for stage in 0..4 {
                let config = Config { mesh: Mesh::of_zero(ranks), transport, ..CONFIG.at_stage(stage) };
                // (N-1)/N of all padded parameters, and of those of the last unit.
                let share = |elements: usize| elements / ranks * (ranks - 1) * 4;
                let (padded, last) = PlanBuf::new("", config, Untied::PLAN.units)
                    .with(|plan| (plan.padded(), plan.placements.last().expect("a unit").padded));
                let psi = share(padded);
                let expected = [2 * psi, 2 * psi, 2 * psi, 3 * psi - share(last)][usize::from(stage)];
                assert_eq!(run::<Untied>(config, 1).moved[0].all().payload_bytes(), expected, "{config:?}");
            }
        }
    }
}
