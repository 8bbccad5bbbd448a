//! Widths: values that are stored as bf16 are rounded, but identically at every stage.

use zero_core::model::Model;
use zero_plan::{Config, Mesh, Often, Order, PlanBuf, Precision, TransportKind, Width};
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::run;
use super::stages::moved_bytes_and_mappings_are_planned;

const F32: Width = Width::F32;
const BF16: Width = Width::BF16;

/// The ZeRO paper's states; the same with reductions in f32; all narrow; and a narrow master copy that is the
/// parameters themselves.
const PRECISIONS: [Precision; 7] = [
    Precision { compute: F32, params: BF16, reduce: BF16, master: F32, moments: F32 },
    Precision { compute: F32, params: BF16, reduce: F32, master: F32, moments: F32 },
    Precision { compute: F32, params: BF16, reduce: BF16, master: BF16, moments: BF16 },
    Precision { compute: F32, params: BF16, reduce: F32, master: BF16, moments: F32 },
    // Layers compute in bf16: on converted parameters, on parameters that are stored in bf16, and with everything in bf16.
    Precision { compute: BF16, params: F32, reduce: BF16, master: F32, moments: F32 },
    Precision { compute: BF16, params: BF16, reduce: BF16, master: F32, moments: F32 },
    Precision { compute: BF16, params: BF16, reduce: BF16, master: BF16, moments: BF16 },
];

#[test]
fn stages_agree_bit_for_bit_where_bf16_rounds() {
    for precision in PRECISIONS {
        for (zero, micro_batches, reduce) in [
            (1, 1, Often::PerMicroBatch),
            (2, 1, Often::PerMicroBatch),
            (3, 2, Often::PerMicroBatch),
            (2, 3, Often::PerStep),
        ] {
            let config = Config { mesh: Mesh::of_zero(zero), micro_batches, reduce, precision, ..CONFIG };
            let expected = run::<Untied>(config, 3);
            assert!(expected.losses.iter().all(|loss| loss.is_finite()));
            let wide = run::<Untied>(Config { precision: Precision::default(), ..config }, 3);
            assert!(expected.bits() != wide.bits(), "nothing rounds");
            for transport in [TransportKind::Local, TransportKind::Shm] {
                for stage in 0..4 {
                    let config = Config { stage, transport, bucket_bytes: 20_000, ..config };
                    assert!(run::<Untied>(config, 3).bits() == expected.bits(), "{config:?} differs from stage 0");
                }
            }
        }
    }
}

#[test]
fn pipelines_agree_where_bf16_rounds() {
    for precision in PRECISIONS {
        let config = Config { mesh: Mesh::of_zero(2), micro_batches: 4, precision, ..CONFIG };
        let expected = run::<Tied>(config, 3);
        for (order, gather) in [(Order::OneFOneB, Often::PerMicroBatch), (Order::GPipe, Often::PerStep)] {
            for stage in 0..4 {
                let config = Config { mesh: mesh(2, 1, 2), order, gather, stage, ..config };
                assert!(run::<Tied>(config, 3).bits() == expected.bits(), "{config:?} differs");
            }
        }
    }
}

#[test]
fn pipelines_agree_where_held_gradients_round() {
    for precision in PRECISIONS {
        let config = Config { mesh: Mesh::of_zero(2), micro_batches: 4, reduce: Often::PerStep, precision, ..CONFIG };
        let expected = run::<Tied>(config, 3);
        for order in [Order::OneFOneB, Order::GPipe, Order::Interleaved { chunks: 2 }] {
            for stage in 0..4 {
                let config = Config { mesh: mesh(2, 1, 2), order, stage, ..config };
                assert!(run::<Tied>(config, 3).bits() == expected.bits(), "{config:?} differs");
            }
        }
    }
}

#[test]
fn stages_agree_over_replicas_where_bf16_rounds() {
    // Sums over one replica are rounded too, so here the order of the two levels is that of the mesh.
    for precision in PRECISIONS {
        for (reduce, micro_batches) in [(Often::PerMicroBatch, 1), (Often::PerMicroBatch, 3), (Often::PerStep, 3)] {
            for (replica, zero) in [(2, 2), (3, 1)] {
                let config = Config { mesh: mesh(1, replica, zero), micro_batches, reduce, precision, ..CONFIG };
                let expected = run::<Tied>(config, 3);
                for (pipeline, transport) in
                    [(1, TransportKind::Local), (1, TransportKind::Shm), (2, TransportKind::Shm)]
                {
                    for stage in 0..4 {
                        let mesh = mesh(pipeline, replica, zero);
                        let config = Config { mesh, stage, transport, bucket_bytes: 20_000, ..config };
                        assert!(run::<Tied>(config, 3).bits() == expected.bits(), "{config:?} differs from stage 0");
                    }
                }
            }
        }
    }
}

/// Against gradients that are reduced in each micro-batch, in f32: the runs above hold gradients on both sides of their
/// comparisons.
#[test]
fn held_gradients_are_sums_over_all_micro_batches() {
    let config = Config { mesh: Mesh::of_zero(2), micro_batches: 3, ..CONFIG };
    let gradients = |config: Config| run::<Untied>(config, 1).gradients.concat();
    let expected = gradients(config);
    for (width, admitted) in [(F32, 1e-6), (BF16, 1e-2)] {
        for stage in [0, 2] {
            let precision = Precision { reduce: width, ..Precision::default() };
            let held = gradients(Config { reduce: Often::PerStep, precision, stage, ..config });
            assert_eq!(held.len(), expected.len());
            let differences: Vec<f32> = held.iter().zip(&expected).map(|(a, b)| a - b).collect();
            let distance = norm(&differences) / norm(&expected);
            assert!(distance < admitted, "stage {stage}, {width:?}: off by {distance}");
        }
    }
}

fn norm(numbers: &[f32]) -> f64 {
    numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn training_with_a_master_copy_follows_f32() {
    let config = Config { mesh: Mesh::of_zero(2), stage: 3, ..CONFIG };
    let wide = run::<Untied>(config, 20);
    let mixed = run::<Untied>(Config { precision: PRECISIONS[0], ..config }, 20);
    for (a, b) in wide.losses.iter().zip(&mixed.losses) {
        assert!((a - b).abs() < 2e-2, "losses {a} and {b}");
    }
}

#[test]
fn narrow_gathers_halve_the_traffic() {
    let config = Config { mesh: Mesh::of_zero(4), stage: 3, ..CONFIG };
    let sent = |precision| run::<Untied>(Config { precision, ..config }, 1).moved[0].all();
    let (wide, narrow) = (sent(Precision::default()), sent(PRECISIONS[0]));
    assert_eq!(wide.gather_bytes, 2 * narrow.gather_bytes);
    assert_eq!(wide.reduce_bytes, 2 * narrow.reduce_bytes);
}

#[test]
fn moved_bytes_and_mappings_are_those_of_the_plan_in_every_width() {
    for precision in PRECISIONS {
        for stage in 0..4 {
            for (pipeline, replica, zero) in [(1, 1, 3), (1, 2, 2), (2, 2, 1)] {
                let config =
                    Config { mesh: mesh(pipeline, replica, zero), stage, micro_batches: 2, precision, ..CONFIG };
                moved_bytes_and_mappings_are_planned::<Tied>(config);
            }
        }
    }
}

#[test]
fn no_unit_divides_by_the_ranks() {
    for ranks in [2, 4] {
        PlanBuf::new("", Config { mesh: Mesh::of_zero(ranks), ..CONFIG }, Untied::PLAN.units).with(|plan| {
            for (unit, placement) in plan.units.iter().zip(plan.placements) {
                assert!(placement.padded > unit.params, "{unit} has no padding, so it does not test padding");
            }
        });
    }
}
