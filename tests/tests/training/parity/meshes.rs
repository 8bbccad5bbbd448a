//! Meshes: replicas, pipelines and both train to the bits of plain data parallelism over the same micro-batches.

use zero_plan::{Axis, Config, Mesh, Often, Order, Recompute, TransportKind};
use zero_tests::tiny::{InBothWidths, Tied, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::stages::moved_bytes_and_mappings_are_planned;
use super::{WIDTHS, run};

/// Plain data parallelism over as many data-parallel ranks. If the ranks of a replica are a power of two, sums over replicas of
/// sums over ranks have the order of sums over all; otherwise the order of the two levels is that of the mesh.
pub fn plain(config: &Config) -> Config {
    let Mesh { replica, zero, .. } = config.mesh;
    let mesh = if zero.is_power_of_two() { Mesh::of_zero(replica * zero) } else { mesh(1, replica, zero) };
    let Config { micro_batches, reduce, precision, optimizer, .. } = *config;
    Config { mesh, micro_batches, reduce, precision, optimizer, ..CONFIG }
}

pub fn equals_plain<M: InBothWidths>(configs: &[Config]) {
    let (mut plain_config, mut expected) = (None, None);
    for config in configs {
        if plain_config != Some(plain(config)) {
            plain_config = Some(plain(config));
            expected = plain_config.map(|plain| run::<M>(plain, 3).bits());
        }
        assert!(Some(run::<M>(*config, 3).bits()) == expected, "{config:?} differs from plain data parallelism");
    }
}

/// All stages, each with everything that can be combined with it.
pub fn stages(config: Config) -> Vec<Config> {
    let mut all = Vec::new();
    for (transport, bucket_bytes, recompute) in [
        (TransportKind::Local, 1, Recompute::None),
        (TransportKind::Shm, 40_000, Recompute::Every(2)),
        (TransportKind::Local, usize::MAX, Recompute::Every(1)),
        (TransportKind::Shm, 1, Recompute::Fields(&["embed", "head"])),
    ] {
        let config = Config { transport, bucket_bytes, recompute, ..config };
        all.extend([0, 1, 2].map(|stage| config.at_stage(stage)));
        for gather in [Often::PerMicroBatch, Often::PerStep] {
            all.extend([0, 1, 9].map(|prefetch| Config { stage: 3, prefetch, gather, ..config }));
        }
    }
    all
}

#[test]
fn replicas_equal_plain_data_parallelism() {
    for (replica, zero) in [(2, 1), (2, 2), (3, 2), (2, 4), (2, 3)] {
        for (micro_batches, reduce) in [(1, Often::PerMicroBatch), (3, Often::PerMicroBatch), (3, Often::PerStep)] {
            for precision in WIDTHS {
                let config = Config { mesh: mesh(1, replica, zero), micro_batches, reduce, precision, ..CONFIG };
                // In bf16 every third, because the effect of a width does not depend on all other settings at once.
                let step = if precision == WIDTHS[0] { 1 } else { 3 };
                equals_plain::<Untied>(&stages(config).into_iter().step_by(step).collect::<Vec<_>>());
            }
        }
    }
}

/// Pipelines of 2 and of 4 pipeline stages, in every order.
pub fn pipelines() -> Vec<Config> {
    let mut all = Vec::new();
    for (pipeline, order) in [
        (2, Order::GPipe),
        (2, Order::OneFOneB),
        (4, Order::OneFOneB),
        (4, Order::GPipe),
        (2, Order::Interleaved { chunks: 2 }),
    ] {
        for (replica, zero) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            for reduce in [Often::PerMicroBatch, Often::PerStep] {
                let mesh = mesh(pipeline, replica, zero);
                all.push(Config { mesh, order, micro_batches: 4, reduce, ..CONFIG });
            }
        }
    }
    all
}

#[test]
fn pipelines_equal_plain_data_parallelism() {
    for (number, config) in pipelines().into_iter().enumerate() {
        // A third of them, a different one for each pipeline: the test with tied weights, which send more, runs all.
        let stages = stages(config).into_iter().skip(number % 3).step_by(3);
        equals_plain::<Untied>(&stages.collect::<Vec<_>>());
    }
}

#[test]
fn pipelines_equal_plain_data_parallelism_in_bf16() {
    for config in pipelines() {
        let stages = stages(Config { precision: WIDTHS[1], ..config });
        // Every fourth, because the effect of a width does not depend on all other settings at once.
        equals_plain::<Tied>(&stages.into_iter().step_by(4).collect::<Vec<_>>());
    }
}

#[test]
fn pipelines_equal_plain_data_parallelism_with_tied_weights() {
    for config in pipelines() {
        equals_plain::<Tied>(&stages(config));
    }
}

#[test]
fn ranks_may_be_numbered_along_any_axis_first() {
    let [zero, replica, pipeline] = Axis::ALL;
    for order in [[replica, zero, pipeline], [pipeline, replica, zero], [zero, pipeline, replica]] {
        for (pipeline_stages, replica, zero) in [(1, 3, 2), (2, 2, 2), (2, 3, 2)] {
            let mesh = Mesh { order, ..mesh(pipeline_stages, replica, zero) };
            let config = Config { mesh, micro_batches: 2, ..CONFIG };
            let variants: Vec<Config> =
                [0, 1, 2, 3].map(|stage| Config { transport: transport(stage), ..config.at_stage(stage) }).into();
            equals_plain::<Tied>(&variants);
        }
    }
}

/// Each transport in turn, for tests that need not run all combinations.
const fn transport(stage: u8) -> TransportKind {
    if stage.is_multiple_of(2) { TransportKind::Local } else { TransportKind::Shm }
}

#[test]
fn held_and_reduced_gradients_differ_in_rounding_alone() {
    let config = Config { mesh: mesh(2, 1, 2), micro_batches: 4, ..CONFIG };
    let each = run::<Untied>(config, 3);
    let once = run::<Untied>(Config { reduce: Often::PerStep, ..config }, 3);
    // Otherwise `reduce` would change nothing.
    assert!(each.bits() != once.bits());
    for (a, b) in each.losses.iter().zip(&once.losses) {
        assert!((a - b).abs() < 1e-4, "losses {a} and {b}");
    }
}

#[test]
fn moved_bytes_and_mappings_are_those_of_the_plan_on_every_rank() {
    for config in pipelines() {
        for config in stages(config).into_iter().step_by(3) {
            moved_bytes_and_mappings_are_planned::<Tied>(config);
        }
    }
    for (replica, zero) in [(2, 2), (3, 2), (2, 3)] {
        for config in stages(Config { mesh: mesh(1, replica, zero), micro_batches: 2, ..CONFIG }) {
            moved_bytes_and_mappings_are_planned::<Untied>(config);
        }
    }
}

#[test]
fn sixty_four_ranks_run_the_hybrid_layouts_to_the_end() {
    let config = Config { stage: 3, micro_batches: 8, ..CONFIG };
    for (pipeline, replica, zero, order) in [
        (4, 4, 4, Order::OneFOneB),
        (2, 4, 8, Order::Interleaved { chunks: 2 }),
        (4, 1, 16, Order::GPipe),
        (1, 8, 8, Order::OneFOneB),
    ] {
        let config = Config { mesh: mesh(pipeline, replica, zero), order, ..config };
        assert_eq!(config.mesh.ranks(), 64);
        let outcome = run::<Tied>(config, 2);
        assert!(outcome.losses.iter().all(|loss| loss.is_finite()));
    }
}
