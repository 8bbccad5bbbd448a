//! Trains a model under a plan made at run time, on ranks that are threads, and keeps all that runs are compared by.

use zero_plan::{Config, PlanBuf, Traffic, Transport};
use zero_runtime::engine::{Engine, Hyper, RunError};
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_runtime::random::mix;
use zero_runtime::transport::{Shared, Transport as _, local};

/// The optimizer of the tests, unless they say otherwise: every part of it on.
pub const HYPER: Hyper =
    Hyper { lr: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(0.25) };

/// A configuration of the tiny models, to vary.
pub const CONFIG: Config = Config {
    stage: 0,
    ranks: 1,
    prefetch: 1,
    bucket_bytes: 1,
    sequences: 2,
    length: 11,
    micro_batches: 1,
    transport: Transport::Local,
    memory_bytes: None,
};

/// The first parameters of a run.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// As the layers say.
    Seed(u64),
    /// These flat buffers, one for each unit.
    Flat(&'a [Vec<f32>]),
}

/// Fills micro-batch (step, rank, micro-batch): ids and targets.
pub type Batch<'a> = &'a (dyn Fn(u64, usize, usize, &mut [u32], &mut [u32]) + Sync);

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean loss of each step.
    pub losses: Vec<f64>,
    /// Gradient norm of each step.
    pub norms: Vec<f64>,
    /// Parameters of each unit at the end.
    pub parameters: Vec<Vec<f32>>,
    /// Sums of the first step's gradients of each unit, over ranks and micro-batches.
    pub gradients: Vec<Vec<f32>>,
    /// What a rank sent in all steps.
    pub sent: Traffic,
    /// Bytes of a rank's arena.
    pub arena_bytes: usize,
}

impl Outcome {
    /// Everything about a run that must not depend on stage, transport, buckets or prefetch, to the bit.
    pub fn bits(&self) -> (Vec<u64>, Vec<u64>, Vec<u32>) {
        (
            self.losses.iter().map(|loss| loss.to_bits()).collect(),
            self.norms.iter().map(|norm| norm.to_bits()).collect(),
            self.parameters.iter().flatten().map(|param| param.to_bits()).collect(),
        )
    }
}

/// Trains on threads.
///
/// # Panics
/// If a rank fails, or if ranks disagree about the outcome.
pub fn train<M: Model<Input = Tokens>>(
    config: Config,
    hyper: Hyper,
    steps: u64,
    start: Start,
    batch: Batch,
) -> Outcome {
    let plan = PlanBuf::new(M::PLAN.model, config, M::PLAN.units);
    let plan = plan.as_plan();
    assert_eq!(plan.check(), Ok(()));
    let ranks = local::run(&plan, Result::is_err, |transport| train_rank::<M>(transport, hyper, steps, start, batch))
        .expect("the memory of a tiny model");
    let mut outcomes = ranks.into_iter().map(|rank| rank.expect("a run without faults"));
    let mut first = outcomes.next().expect("at least one rank");
    for other in outcomes {
        for (all, shard) in first.gradients.iter_mut().zip(&other.gradients) {
            all.extend(shard);
        }
        assert_eq!((&first.losses, &first.norms), (&other.losses, &other.norms));
        assert_eq!((&first.parameters, first.sent), (&other.parameters, other.sent));
    }
    first
}

/// Trains as one rank; of the gradients, only its shards are in the outcome.
///
/// # Errors
/// Those of [`Engine::step`].
pub fn train_rank<M: Model<Input = Tokens>>(
    transport: Shared,
    hyper: Hyper,
    steps: u64,
    start: Start,
    batch: Batch,
) -> Result<Outcome, RunError> {
    let mut engine = Engine::<M, _>::new(transport);
    let (plan, rank) = (engine.plan(), engine.arena().rank());
    match start {
        Start::Seed(seed) => engine.initialize(seed),
        Start::Flat(flat) => flat.iter().enumerate().for_each(|(unit, flat)| engine.load(unit, flat)),
    }
    let mut outcome = Outcome { arena_bytes: engine.arena().bytes(), ..Outcome::default() };
    for step in 0..steps {
        let report = engine.step(&hyper, |micro_batch, ids, targets| batch(step, rank, micro_batch, ids, targets))?;
        outcome.losses.push(report.loss);
        outcome.norms.push(report.gradient_norm);
        if step == 0 {
            outcome.gradients = (0..plan.units.len()).map(|unit| engine.reduced_gradients(unit).1).collect();
        }
    }
    outcome.sent = engine.transport().sent();
    for unit in 0..plan.units.len() {
        outcome.parameters.push(engine.parameters(unit)?);
    }
    Ok(outcome)
}

/// Micro-batches of noise for the tiny models, cut from one global batch: rank and micro-batch only say which part.
pub fn noise(config: Config) -> impl Fn(u64, usize, usize, &mut [u32], &mut [u32]) + Sync {
    move |step, rank, micro_batch, ids, targets| {
        let first = (micro_batch * config.ranks + rank) * ids.len();
        for (i, (id, target)) in ids.iter_mut().zip(targets).enumerate() {
            let draw = mix(step, (first + i) as u64);
            *id = (draw % 29) as u32;
            *target = (draw / 29 % 29) as u32;
        }
    }
}
