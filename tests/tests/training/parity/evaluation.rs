//! Evaluation: held-out losses and predictions are those of plain data parallelism on every mesh and at every stage, before
//! training and between its steps. They must not change the steps.

use zero_core::model::{Model, Program};
use zero_engine::{Engine, RunError};
use zero_plan::{Axis, Config, Mesh, Often, PlanBuf, Precision, Width};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::{Tied, Untied, VOCAB};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

use super::meshes::{pipelines, plain, stages};

/// Steps for which [`noise`] draws held-out sequences; none of them is a training step.
const HELD_OUT: u64 = 100;

/// Lengths of the sequences for predictions: the shortest, one in between, the plan's.
const LENGTHS: [usize; 3] = [1, 4, 11];

/// The results of a rank, to the bit.
#[derive(Debug, Default, PartialEq)]
struct Told {
    held_out: Vec<u64>,
    trained: Vec<u64>,
    /// Likeliest next ids, which the last pipeline stage sends to the others.
    choices: Vec<u64>,
    /// Logits; none if the head is on another pipeline stage.
    logits: Vec<u32>,
}

/// Evaluates and predicts before, between and after two steps. Two evaluations in a row are exchanges of equal length.
fn rank_main(program: &'static Program<Cpu>, transport: Shared<Cpu>, config: &Config) -> Result<Told, RunError> {
    let mut engine = Engine::new(program, transport);
    let at = engine.arena().coordinates();
    let data_rank = at.data_rank(&config.mesh);
    let batch = noise(*config);
    engine.initialize(7);
    let mut told = Told::default();
    for step in 0..3 {
        for pass in 0..2 {
            let loss = engine.evaluate(|micro_batch, ids, targets| {
                batch(HELD_OUT + 2 * step + pass, data_rank, micro_batch, ids, targets);
            })?;
            told.held_out.push(loss.to_bits());
        }
        for length in LENGTHS {
            let ids: Vec<u32> = (0..length as u32).map(|i| (7 * i + step as u32) % VOCAB as u32).collect();
            let mut logits = [f32::NAN; VOCAB];
            let has_logits = engine.predict(&ids, &mut logits)?;
            assert_eq!(
                has_logits,
                at.pipeline + 1 == config.mesh.len(Axis::Pipeline),
                "logits on another pipeline stage"
            );
            let likeliest = (0..VOCAB).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("ids");
            let choice = if has_logits { likeliest as f64 } else { f64::NAN };
            told.choices.push(engine.from_last_pipeline_stage(choice)?.to_bits());
            told.logits.extend(logits.iter().filter(|_| has_logits).map(|logit| logit.to_bits()));
        }
        if step < 2 {
            let report =
                engine.step(&HYPER, |micro_batch, ids, targets| batch(step, data_rank, micro_batch, ids, targets))?;
            told.trained.push(report.loss.to_bits());
        }
    }
    Ok(told)
}

/// The results of all ranks, after a check that they are the same.
fn told(program: &'static Program<Cpu>, config: &Config) -> Told {
    let ranks = PlanBuf::new(program.plan.model, *config, program.plan.units)
        .with(|plan| local::run(plan, Result::is_err, |transport| rank_main(program, transport, config)))
        .expect("the memory of a tiny model");
    let mut ranks: Vec<Told> = ranks.into_iter().map(|rank| rank.expect("a run without faults")).collect();
    let last = ranks.iter().rposition(|rank| !rank.logits.is_empty()).expect("a last pipeline stage");
    let all = ranks.swap_remove(last);
    for one in &ranks {
        let logits = if one.logits.is_empty() { &one.logits } else { &all.logits };
        assert_eq!(
            (&one.held_out, &one.trained, &one.choices),
            (&all.held_out, &all.trained, &all.choices),
            "{config:?}"
        );
        assert!(one.logits == *logits, "{config:?}: other logits");
    }
    all
}

fn equals(
    program: &'static Program<Cpu>,
    configs: impl Iterator<Item = Config>,
    reference: impl Fn(&Config) -> Config,
) {
    let (mut known, mut expected) = (None, Told::default());
    for config in configs {
        let reference = reference(&config);
        if known != Some(reference) {
            (known, expected) = (Some(reference), told(program, &reference));
            assert!(expected.held_out[0] != expected.held_out[1], "held-out batches are alike");
            assert!(expected.held_out.iter().chain(&expected.trained).all(|&bits| f64::from_bits(bits).is_finite()));
            assert_eq!(expected.logits.len(), 3 * LENGTHS.len() * VOCAB);
        }
        assert!(told(program, &config) == expected, "{config:?} differs from plain data parallelism");
    }
}

#[test]
fn pipelines_evaluate_as_plain_data_parallelism_does() {
    // A third of the variants of each mesh, a different third each time.
    let of_all = |config: (usize, Config)| stages(config.1).into_iter().skip(config.0 % 3).step_by(3);
    equals(Tied::PROGRAM, pipelines().into_iter().enumerate().flat_map(of_all), plain);
    equals(Untied::PROGRAM, pipelines().into_iter().skip(1).step_by(3).enumerate().flat_map(of_all), plain);
}

#[test]
fn replicas_evaluate_as_plain_data_parallelism_does() {
    for (replica, zero) in [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2)] {
        let config = Config { mesh: mesh(1, replica, zero), micro_batches: 2, ..CONFIG };
        equals(Tied::PROGRAM, stages(config).into_iter(), plain);
    }
}

#[test]
fn widened_parameters_evaluate_as_plain_data_parallelism_does() {
    let precision = Precision { params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
    for pipeline in [1, 2] {
        let config = Config { mesh: mesh(pipeline, 1, 2), micro_batches: 2, precision, ..CONFIG };
        let plain = Config { mesh: Mesh::of_zero(2), reduce: Often::PerMicroBatch, ..config };
        equals(Tied::PROGRAM, stages(config).into_iter(), |_| plain);
    }
}

/// One rank alone computes the loss of the data of each rank; all ranks must get the mean of these losses.
#[test]
fn the_loss_is_the_mean_over_the_ranks_with_data_of_their_own() {
    let losses = |config: Config, data_ranks: core::ops::Range<usize>| {
        let main = |transport: Shared<'_, Cpu>| {
            let mut engine = Engine::new(Untied::PROGRAM, transport);
            let data_rank = data_ranks.start + engine.arena().coordinates().data_rank(&config.mesh);
            engine.initialize(7);
            let batch = noise(Config { mesh: Mesh::of_zero(6), ..config });
            let loss = engine.evaluate(|part, ids, targets| batch(HELD_OUT, data_rank, part, ids, targets));
            loss.expect("a finite loss")
        };
        let plan = PlanBuf::new("", config, Untied::PLAN.units);
        plan.with(|plan| local::run(plan, |_| false, main)).expect("the memory of a tiny model")
    };
    let of_one = |data_rank: usize| losses(CONFIG.at_stage(0), data_rank..data_rank + 1)[0];
    let alone: Vec<f64> = (0..6).map(of_one).collect();
    let mean = alone.iter().sum::<f64>() / 6.0;
    assert!(alone.iter().all(|loss| (loss - mean).abs() > 1e-6), "data of all ranks are alike: {alone:?}");
    for (pipeline, replica, zero) in [(1, 1, 6), (1, 2, 3), (2, 3, 2)] {
        for loss in losses(Config { mesh: mesh(pipeline, replica, zero), micro_batches: 2, ..CONFIG.at_stage(3) }, 0..6)
        {
            assert!((loss - mean).abs() < 1e-12, "{loss}, not {mean}");
        }
    }
}
