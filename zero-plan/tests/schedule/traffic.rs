//! Traffic: bytes that a rank sends, against the published volumes, and formulas for what the papers leave out.
//!
//! With P bytes of padded parameters over N ranks, every whole pass over the parameters sends (N-1)/N P. In m
//! micro-batches, stages 0 to 2 reduce-scatter m times and all-gather once (sums at stage 0, parameters above): m + 1
//! passes. Stage 3 reduce-scatters m times, and gathers each unit for each forward and each backward, 2 m times, except
//! that the last unit in use is gathered once for both, and the first once for a backward and the forward of the next
//! micro-batch. So U equal units are gathered m (2 U - 1) - (m - 1) times. Units that are held for a step are sent
//! once.

use proptest::prelude::*;
use zero_plan::{
    Config, Moved, Often, Op, OptimizerKind, OrthogonalCost, Plan, Precision, Traffic, TransportKind, Width,
};

use crate::model::{Model, config, mesh, models, precision};

fn step(plan: &Plan, pipeline: usize) -> Traffic {
    Traffic::of(plan, plan.first_rank(pipeline), plan.pipeline_stages[pipeline].step)
}

/// The traffic of a rank of the first pipeline stage.
fn sent(config: Config, params: &[usize], tied: Option<usize>) -> Traffic {
    Model::new(config, params, tied).plan().with(|plan| step(plan, 0))
}

/// ZeRO paper, section 7: 2, 2, 2 and 3 times the parameters, minus the gather of the last unit, which stage 3 saves.
#[test]
fn one_micro_batch_sends_the_published_volumes() {
    for ranks in [1, 2, 3, 4, 8] {
        for stage in 0..=3 {
            let config = Config { mesh: mesh(1, ranks, 1), ..config(stage) };
            Model::new(config, &[1000, 300, 77, 5000, 123], None).plan().with(|plan| {
                let saved = plan.placements[4].padded;
                let passes = if stage == 3 { 3 * plan.padded() - saved } else { 2 * plan.padded() };
                let expected = passes * 4 / ranks * (ranks - 1);
                assert_eq!(step(plan, 0).payload_bytes(), expected, "stage {stage} over {ranks}");
            });
        }
    }
}

/// Distributed Muon (Liu et al., 2025, section 2.3) also gathers the directions that momentum makes of the gradients,
/// of all units with matrices. Here these are all except the first.
#[test]
fn muon_sends_the_directions_of_its_matrices_once() {
    for ranks in [1, 2, 3, 4, 8] {
        for stage in 0..=3 {
            let config = Config { mesh: mesh(1, ranks, 1), ..config(stage) };
            let params = [1000, 300, 77, 5000, 123];
            let adamw = sent(config, &params, None);
            let muon = Config { optimizer: OptimizerKind::Muon, ..config };
            Model::new(muon, &params, None).plan().with(|plan| {
                let directions = if stage > 0 { plan.padded() - plan.placements[0].padded } else { 0 };
                let spread_bytes = adamw.spread_bytes + directions * 4 / ranks * (ranks - 1);
                assert_eq!(step(plan, 0), Traffic { spread_bytes, ..adamw }, "stage {stage} over {ranks}");
            });
        }
    }
}

#[test]
fn equal_units_are_gathered_for_each_use_but_the_shared_ones() {
    for units in 1..=5 {
        for micro_batches in 1..=4 {
            let gathers = |gather| {
                let config = Config { micro_batches, gather, ..config(3) };
                Model::new(config, &vec![32; units], None).plan().with(|plan| {
                    plan.pipeline_stages[0].step.iter().filter(|op| matches!(op, Op::Gather { .. })).count()
                })
            };
            assert_eq!(gathers(Often::PerMicroBatch), micro_batches * (2 * units - 1) - (micro_batches - 1));
            assert_eq!(gathers(Often::PerStep), units);
        }
    }
}

/// Two ranks pad 40, 100 and 10 parameters to 64, 128 and 32: 224 elements, 896 bytes, of which half goes to the peer.
#[test]
fn a_small_model_sends_what_was_worked_out_by_hand() {
    let sent = |stage, micro_batches, params: &[usize], tied| {
        let traffic = sent(Config { micro_batches, ..config(stage) }, params, tied);
        let Traffic { gather_bytes, reduce_bytes, spread_bytes, agree_bytes, .. } = traffic;
        // The loss and a norm of each unit, numbers of eight bytes, to the one peer.
        assert_eq!(agree_bytes, 8 * (1 + params.len()));
        assert_eq!(traffic.total_bytes(), gather_bytes + reduce_bytes + spread_bytes + agree_bytes);
        [gather_bytes, reduce_bytes, spread_bytes]
    };
    let untied = |stage, micro_batches| sent(stage, micro_batches, &[40, 100, 10], None);
    assert_eq!(untied(0, 1), [0, 448, 448]);
    assert_eq!(untied(1, 1), [448, 448, 0]);
    assert_eq!(untied(2, 1), [448, 448, 0]);
    // Units 0 1 2 1 0: 64 + 128 + 32 + 128 + 64 = 416 elements.
    assert_eq!(untied(3, 1), [832, 448, 0]);
    assert_eq!(untied(0, 2), [0, 896, 448]);
    assert_eq!(untied(1, 2), [448, 896, 0]);
    assert_eq!(untied(2, 2), [448, 896, 0]);
    // Units 0 1 2 1 0 1 2 1 0: 3 x 64 + 4 x 128 + 2 x 32 = 768 elements.
    assert_eq!(untied(3, 2), [1536, 896, 0]);
    // The last unit takes the 64 of unit 0 and has as many gradients of its own: 256 elements are summed. Units 0 1 0 1
    // 0 are gathered: 3 x 64 + 2 x 128 = 448.
    assert_eq!(sent(3, 1, &[40, 100, 0], Some(0)), [896, 512, 0]);
    // Tied to the unit before it, it uses parameters that are held: units 0 1 0. Gradients are 64, 128 and 128.
    assert_eq!(sent(3, 1, &[40, 100, 0], Some(1)), [512, 640, 0]);
}

/// A rank reads some bytes of its peers in place: the terms of sums, and parameters, if those of all ranks lie in one
/// mapping and layers compute with them unconverted. Everything else is copied.
#[test]
fn views_and_terms_of_sums_are_not_copied() {
    let moved = |stage, transport, params, compute| {
        let precision = Precision { compute, ..precision(params, Width::F32) };
        let config = Config { mesh: mesh(1, 2, 2), transport, precision, ..config(stage) };
        Model::new(config, &[40, 100, 10], None).plan().with(|plan| Moved::sent(plan, 0, plan.pipeline_stages[0].step))
    };
    let widths = [Width::F32, Width::BF16];
    for (stage, transport) in (0..=3).flat_map(|stage| [(stage, TransportKind::Local), (stage, TransportKind::Shm)]) {
        for (params, compute) in widths.into_iter().flat_map(|params| widths.map(|compute| (params, compute))) {
            let Moved { copied, in_place } = moved(stage, transport, params, compute);
            assert!(in_place.reduce_bytes > 0 && in_place.replica_reduce_bytes > 0);
            assert_eq!((copied.reduce_bytes, copied.replica_reduce_bytes), (0, 0));
            assert_eq!((in_place.spread_bytes, in_place.replica_spread_bytes, in_place.agree_bytes), (0, 0, 0));
            let is_view = stage == 3 && transport == TransportKind::Shm && params == compute;
            let case = format!("stage {stage}, {transport:?}, {params:?} computed with as {compute:?}");
            assert_eq!(in_place.gather_bytes > 0, is_view, "{case}");
            assert_eq!(copied.gather_bytes > 0, stage > 0 && !is_view, "{case}");
        }
    }
}

/// On two replicas of two ranks each, a unit of 100 parameters is padded to 128, a shard has 64 elements, and each
/// replica sums half of it: 64 elements go to the peer along `zero`, 32 to the other replica, and as many come back.
#[test]
fn replicas_send_shards_only() {
    let traffic = |stage| {
        let config = Config { mesh: mesh(1, 2, 2), ..config(stage) };
        let traffic = sent(config, &[100], None);
        assert_eq!((traffic.replica_reduce_bytes, traffic.replica_spread_bytes), (4 * 32, 4 * 32));
        [traffic.gather_bytes, traffic.reduce_bytes, traffic.spread_bytes].map(|bytes| bytes / 4)
    };
    assert_eq!(traffic(0), [0, 64, 64]);
    assert_eq!(traffic(1), [64, 64, 0]);
    assert_eq!(traffic(2), [64, 64, 0]);
    // The only unit is held from its forward to its backward.
    assert_eq!(traffic(3), [64, 64, 0]);
}

/// The activations of the models here have 21 bytes, and so do their gradients.
#[test]
fn pipelines_send_what_crosses_and_what_is_tied() {
    let config = Config { mesh: mesh(2, 1, 1), micro_batches: 3, ..config(1) };
    Model::new(config, &[40, 7, 9, 0], Some(0)).plan().with(|plan| {
        let (first, last) = (step(plan, 0), step(plan, 1));
        assert_eq!((first.activation_bytes, first.gradient_bytes), (3 * 21, 0));
        assert_eq!((last.activation_bytes, last.gradient_bytes), (0, 3 * 21));
        // 40 parameters are padded to 48. Updated parameters go one way, their gradients the other.
        assert_eq!((first.tied_bytes, last.tied_bytes), (4 * 48, 4 * 48));
    });
}

#[test]
fn narrow_states_send_half() {
    for stage in 0..=3 {
        let wide = sent(config(stage), &[40, 100, 10], None);
        let narrow = Config { precision: precision(Width::BF16, Width::BF16), ..config(stage) };
        assert_eq!(2 * sent(narrow, &[40, 100, 10], None).payload_bytes(), wide.payload_bytes());
    }
}

/// Units that are held for a step do not travel more often if there are more micro-batches.
#[test]
fn per_step_takes_micro_batches_out_of_the_volume() {
    for stage in 0..=3 {
        let often = |micro_batches, often| {
            let config = Config { micro_batches, gather: often, reduce: often, ..config(stage) };
            sent(config, &[40, 100, 10], None).payload_bytes()
        };
        assert_eq!(often(5, Often::PerStep), often(2, Often::PerStep));
        assert!(often(5, Often::PerMicroBatch) > often(2, Often::PerMicroBatch));
        // At stage 3, two passes in place of three.
        assert_eq!(often(5, Often::PerStep), 2 * 448);
    }
}

/// Elements that a rank of a pipeline stage gathers in a step at stage 3: each unit once for each stretch of
/// computations on it.
fn gathered(plan: &Plan, pipeline: usize) -> usize {
    let held = |unit: usize| if plan.placements[unit].holds { unit } else { plan.units[unit].source };
    let computed = plan.pipeline_stages[pipeline].step.iter().filter_map(|op| match *op {
        Op::Forward { unit, .. } | Op::Backward { unit, .. } if plan.placements[unit].padded > 0 => Some(held(unit)),
        _ => None,
    });
    let mut uses: Vec<usize> = computed.collect();
    uses.dedup();
    if plan.config.gather == Often::PerStep {
        uses.sort();
        uses.dedup();
    }
    uses.into_iter().map(|unit| plan.placements[unit].padded).sum()
}

/// The traffic of a rank of a pipeline stage, by the formulas.
fn expected(plan: &Plan, pipeline: usize) -> Traffic {
    let config = &plan.config;
    let (mesh, precision) = (config.mesh, config.precision);
    let (params, reduce) = (precision.params.bytes(), precision.reduce.bytes());
    let to_others = |bytes: usize, ranks: usize| bytes / ranks * (ranks - 1);
    let sum = |of: &dyn Fn(usize) -> usize| -> usize {
        (0..plan.units.len()).filter(|&unit| plan.placements[unit].pipeline_stage == pipeline).map(of).sum()
    };
    let padded = |unit: usize| plan.placements[unit].padded;
    let is_tied = |unit: usize| plan.units[unit].source != unit;
    // Gradients of a tied unit go to its owner once they are summed.
    let summed = sum(&padded) * reduce;
    let spread = sum(&|unit| if is_tied(unit) { 0 } else { padded(unit) }) * reduce;
    let has_directions = |unit: usize| {
        config.optimizer == OptimizerKind::Muon && !is_tied(unit) && plan.units[unit].matrices != OrthogonalCost::NONE
    };
    let directions = sum(&|unit| if has_directions(unit) { padded(unit) } else { 0 }) * reduce;
    let held = sum(&|unit| if plan.placements[unit].holds { padded(unit) } else { 0 });
    let gathered = match config.stage {
        0 => 0,
        1 | 2 => held,
        _ => gathered(plan, pipeline),
    };
    let rounds = if config.reduce == Often::PerStep { 1 } else { config.micro_batches };
    let crosses = |unit: usize| plan.chunks.iter().any(|chunk| chunk.first == unit && unit > 0);
    let tied = plan.units.len() - 1;
    let owner = plan.units[tied].source;
    let is_mirror = is_tied(tied) && plan.placements[tied].pipeline_stage != plan.placements[owner].pipeline_stage;
    let part = if config.stage > 0 { padded(owner) / mesh.zero } else { padded(owner) };
    let mut tied_bytes = 0;
    if is_mirror && plan.placements[tied].pipeline_stage == pipeline {
        tied_bytes += padded(owner) / mesh.data_ranks() * reduce;
    }
    if is_mirror && plan.placements[owner].pipeline_stage == pipeline {
        tied_bytes += part * params;
    }
    Traffic {
        gather_bytes: to_others(gathered * params, mesh.zero),
        reduce_bytes: rounds * to_others(summed, mesh.zero),
        spread_bytes: to_others(if config.stage == 0 { spread } else { directions }, mesh.zero),
        replica_reduce_bytes: rounds * to_others(summed / mesh.zero, mesh.replica),
        replica_spread_bytes: to_others(spread / mesh.zero, mesh.replica),
        activation_bytes: config.micro_batches
            * sum(&|unit| if crosses(unit + 1) { plan.units[unit].output_bytes } else { 0 }),
        gradient_bytes: config.micro_batches
            * sum(&|unit| if crosses(unit) { plan.units[unit].input_bytes } else { 0 }),
        tied_bytes,
        agree_bytes: 8 * (1 + plan.units.len()) * (mesh.ranks() - 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_model_sends_what_the_formulas_say(model in models(48)) {
        model.plan().with(|plan| {
            for pipeline in 0..plan.pipeline_stages.len() {
                prop_assert_eq!(step(plan, pipeline), expected(plan, pipeline), "pipeline stage {}", pipeline);
                let sent = Moved::sent(plan, plan.first_rank(pipeline), plan.pipeline_stages[pipeline].step);
                prop_assert_eq!(sent.all(), step(plan, pipeline), "pipeline stage {}", pipeline);
            }
            // All bytes that are sent are also taken, in the same way.
            let all = |of: fn(&Plan, usize, &[Op]) -> Moved| {
                let pipeline_stages = plan.pipeline_stages.iter().enumerate();
                let pipeline_stages = pipeline_stages
                    .map(|(pipeline, tables)| of(plan, plan.first_rank(pipeline), tables.step));
                pipeline_stages.fold(Moved::default(), |mut sum, moved| { sum += moved; sum })
            };
            prop_assert_eq!(all(Moved::taken), all(Moved::sent));
            Ok(())
        })?;
    }
}
