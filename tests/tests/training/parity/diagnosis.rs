//! Diagnosis: if any rank finds a number that is not finite, all ranks name the unit where it appeared and its first rank.

use zero_engine::{Engine, FaultyPhase, NonFinite, RunError};
use zero_plan::{Config, PlanBuf};
use zero_ranks::transport::{Shared, local};
use zero_runtime::author::{Backward, Context, Forward, Init, Shape, Tensors};
use zero_runtime::prelude::*;
use zero_tests::tiny::{DIM, VOCAB};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

use super::meshes::{pipelines, stages};

/// Passes its input on. Forward is not finite if its parameters are infinite, and backward if they are zero. If they are the
/// largest finite number, its gradients are as large, and the sum of two is infinite.
struct Fragile<const W: usize>;

impl<S: Shape<Device = Cpu, Compute = f32>, const W: usize> Layer<S, Features<W>> for Fragile<W> {
    type Output = Features<W>;
    const PARAMS: usize = W;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        out.add("health", &[W], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, Features<W>>) {
        let health = pass.params.as_slice()[0];
        pass.y.into_slice().iter_mut().zip(pass.x.as_slice()).for_each(|(y, x)| *y = x + 0.0 * health);
    }

    fn backward(cx: &Context<Cpu>, pass: Backward<S, Features<W>>) {
        let health = pass.params.as_slice()[0];
        let gradient = if health == f32::MAX { health } else { 0.0 };
        pass.grads.put(cx.device, [gradient; W].as_slice().into());
        if let Some(dx) = pass.dx {
            dx.into_slice().iter_mut().zip(pass.dy.as_slice()).for_each(|(dx, dy)| *dx = dy / health);
        }
    }
}

#[zero(stage = 0, ranks = 1, sequences = 2, length = 11)]
struct Chain {
    embed: Embedding<VOCAB, 12, DIM>,
    links: [Fragile<DIM>; 3],
    head: LmHead<DIM, VOCAB>,
}

/// The error of a rank in a step, or else in an evaluation, if the parameters of `broken` are `health`.
fn rank_main(transport: Shared<Cpu>, config: &Config, broken: usize, health: f32, trains: bool) -> NonFinite {
    let mut engine = Engine::new(Chain::PROGRAM, transport);
    let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
    for (unit, sizes) in Chain::PLAN.units.iter().enumerate() {
        let flat: Vec<f32> = match unit {
            _ if unit == broken => vec![health; sizes.params],
            1..=3 => vec![1.0; sizes.params],
            _ => (0..sizes.params).map(|i| (i % 7) as f32 / 7.0).collect(),
        };
        engine.load(unit, &flat);
    }
    let noise = noise(*config);
    let batch =
        |micro_batch: usize, ids: &mut [u32], targets: &mut [u32]| noise(0, data_rank, micro_batch, ids, targets);
    let result = if trains { engine.step(&HYPER, batch).map(|report| report.loss) } else { engine.evaluate(batch) };
    match result {
        Err(RunError::NonFinite(found)) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_ranks_name_the_unit_that_went_wrong_first() {
    for (i, config) in pipelines().into_iter().enumerate() {
        for config in stages(config).into_iter().skip(i % 7).step_by(7) {
            for (broken, health, phase, trained) in [
                (1, f32::INFINITY, FaultyPhase::Forward, true),
                (3, f32::INFINITY, FaultyPhase::Forward, false),
                (2, 0.0, FaultyPhase::Backward, true),
                (3, 0.0, FaultyPhase::Backward, true),
            ] {
                PlanBuf::new(Chain::PLAN.model, config, Chain::PLAN.units).with(|plan| {
                    let pipeline = plan.placements[broken].pipeline_stage;
                    let rank =
                        (0..config.mesh.ranks()).find(|&rank| config.mesh.coordinates(rank).pipeline == pipeline);
                    let (rank, unit) = (rank.expect("a rank"), plan.units[broken].to_string());
                    let expected = NonFinite { step: u64::from(trained), trained, rank, unit, phase };
                    let main = |transport: Shared<'_, Cpu>| rank_main(transport, &config, broken, health, trained);
                    let found = local::run(plan, |_| false, main).expect("the memory of a tiny model");
                    assert!(found.iter().all(|found| *found == expected), "{config:?}: {found:?}, not {expected:?}");
                });
            }
        }
    }
}

#[test]
fn gradients_that_go_wrong_in_their_sum_are_found_in_it() {
    const BROKEN: usize = 2;
    for mesh in [mesh(1, 1, 2), mesh(1, 2, 1), mesh(2, 1, 2)] {
        for stage in 0..4 {
            let config = Config { mesh, ..CONFIG.at_stage(stage) };
            PlanBuf::new(Chain::PLAN.model, config, Chain::PLAN.units).with(|plan| {
                let main = |transport: Shared<'_, Cpu>| rank_main(transport, &config, BROKEN, f32::MAX, true);
                let found = local::run(plan, |_| false, main).expect("the memory of a tiny model");
                let unit = plan.units[BROKEN].to_string();
                let at =
                    |found: &NonFinite| (found.phase, found.unit == unit, config.mesh.coordinates(found.rank).pipeline);
                let expected = (FaultyPhase::Sum, true, plan.placements[BROKEN].pipeline_stage);
                assert!(found.iter().all(|found| at(found) == expected), "{config:?}: {found:?}");
            });
        }
    }
}
