//! Trains a model under a plan made at run time, on ranks that are threads, and keeps the results that tests compare.

use std::hash::{DefaultHasher, Hash, Hasher};

use zero_core::model::Program;
use zero_core::random::mix;
use zero_engine::{Engine, Hyper, RunError};
use zero_plan::footprint::{private_mapping_bytes, segment_mapping_bytes};
use zero_plan::{Config, Mesh, Moved, Plan, PlanBuf, TierKind, Traffic, TransportKind};
use zero_ranks::transport::{Crossed, Transport, local};
use zero_runtime::device::Device;

use crate::tiers::{Haste, MemoryTier};

/// The default optimizer of the tests, with all of its parts enabled.
pub const HYPER: Hyper =
    Hyper { lr: 1e-2, beta1: 0.9, beta2: 0.95, momentum: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(0.25) };

/// A configuration of the tiny models, to vary.
pub const CONFIG: Config =
    Config { prefetch: 1, bucket_bytes: 1, sequences: 2, length: 11, transport: TransportKind::Local, ..Config::PLAIN };

/// A mesh of this many ranks along each axis.
pub const fn mesh(pipeline: usize, replica: usize, zero: usize) -> Mesh {
    Mesh { pipeline, replica, ..Mesh::of_zero(zero) }
}

/// The first parameters of a run.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// Those that the layers choose.
    Seed(u64),
    /// The given flat buffers, one for each unit.
    Flat(&'a [Vec<f32>]),
}

/// Fills micro-batch (step, data rank, micro-batch): ids and targets.
pub type Batch<'a> = &'a (dyn Fn(u64, usize, usize, &mut [u32], &mut [u32]) + Sync);

/// The results of a run.
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
    /// Bytes that each rank took from its peers in all steps.
    pub moved: Vec<Moved>,
    /// Bytes that each rank exchanged with ranks of other hosts in all steps.
    pub crossed: Vec<Crossed>,
    /// Lengths of the mappings of each rank: the private one, and the one that all ranks share.
    pub mapped_bytes: Vec<[usize; 2]>,
}

impl Outcome {
    /// The bits of all results that must not depend on stage, transport, buckets or prefetch.
    pub fn bits(&self) -> (Vec<u64>, Vec<u64>, Vec<u32>) {
        (
            self.losses.iter().map(|loss| loss.to_bits()).collect(),
            self.norms.iter().map(|norm| norm.to_bits()).collect(),
            self.parameters.iter().flatten().map(|param| param.to_bits()).collect(),
        )
    }
}

/// Steps of a run that is compared to the bit.
pub const STEPS: u64 = 3;

/// A rank's outcome in a line: losses and norms to the bit, and a hash of each unit that the rank holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Bits of losses and norms.
    pub numbers: Vec<u64>,
    /// A hash of each unit's parameters at the end; none if the rank has none.
    pub units: Vec<Option<u64>>,
}

impl Told {
    /// The line for an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        let hash = |unit: &Vec<f32>| {
            let mut hasher = DefaultHasher::new();
            unit.iter().for_each(|param| param.to_bits().hash(&mut hasher));
            (!unit.is_empty()).then(|| hasher.finish())
        };
        let numbers = outcome.losses.iter().chain(&outcome.norms).map(|number| number.to_bits()).collect();
        Self { numbers, units: outcome.parameters.iter().map(hash).collect() }
    }

    /// Whether this is one rank's part of `all`, the results of all ranks together.
    pub fn is_part_of(&self, all: &Told) -> bool {
        let mut units = self.units.iter().zip(&all.units);
        self.numbers == all.numbers && units.all(|(own, all)| own.is_none() || own == all)
    }

    /// Parses the output of [`core::fmt::Display`].
    ///
    /// # Panics
    /// If the text has another format.
    pub fn read(line: &str) -> Self {
        let (numbers, units) = line.split_once(" | ").expect("numbers and units");
        let numbers = numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        Self { numbers, units: units.split(' ').map(|unit| unit.parse().ok()).collect() }
    }
}

impl core::fmt::Display for Told {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let numbers: Vec<_> = self.numbers.iter().map(u64::to_string).collect();
        let units: Vec<_> =
            self.units.iter().map(|unit| unit.map_or("-".to_owned(), |hash| hash.to_string())).collect();
        write!(f, "{} | {}", numbers.join(" "), units.join(" "))
    }
}

/// Trains a model of tokens on threads.
///
/// # Panics
/// If a rank fails, or if ranks disagree about the outcome.
pub fn train<D: Device>(
    program: &'static Program<D>,
    config: Config,
    hyper: Hyper,
    steps: u64,
    start: Start,
    batch: Batch,
) -> Outcome {
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        assert_eq!(plan.check(), Ok(()), "{config:?}");
        let ranks =
            local::run(plan, Result::is_err, |transport| train_rank(program, transport, hyper, steps, start, batch))
                .expect("the memory of a tiny model");
        merged(&config, ranks.into_iter().map(|rank| rank.expect("a run without faults")).collect())
    })
}

/// The outcome of all ranks together, after a check that they agree.
pub fn merged(config: &Config, ranks: Vec<Outcome>) -> Outcome {
    let mut all = Outcome {
        losses: ranks[0].losses.clone(),
        norms: ranks[0].norms.clone(),
        moved: ranks.iter().flat_map(|rank| rank.moved.clone()).collect(),
        crossed: ranks.iter().flat_map(|rank| rank.crossed.clone()).collect(),
        mapped_bytes: ranks.iter().flat_map(|rank| rank.mapped_bytes.clone()).collect(),
        parameters: vec![Vec::new(); ranks[0].parameters.len()],
        gradients: vec![Vec::new(); ranks[0].gradients.len()],
    };
    for (rank, one) in ranks.iter().enumerate() {
        assert_eq!((&one.losses, &one.norms), (&all.losses, &all.norms), "rank {rank} has other losses");
        let first_replica = config.mesh.coordinates(rank).replica == 0;
        for unit in 0..all.parameters.len() {
            // Shards are in the order of ranks along `zero`. Without a step there are no gradients.
            if let Some(gradients) = one.gradients.get(unit).filter(|_| first_replica) {
                all.gradients[unit].extend(gradients);
            }
            if all.parameters[unit].is_empty() {
                all.parameters[unit] = one.parameters[unit].clone();
            } else if !one.parameters[unit].is_empty() {
                assert!(all.parameters[unit] == one.parameters[unit], "rank {rank} has another unit {unit}");
            }
        }
    }
    all
}

/// Trains as one rank; the outcome has only this rank's shards of the gradients.
///
/// # Errors
/// Those of [`Engine::step`].
pub fn train_rank<'p, D: Device, T: Transport<'p, D>>(
    program: &'static Program<D>,
    transport: T,
    hyper: Hyper,
    steps: u64,
    start: Start,
    batch: Batch,
) -> Result<Outcome, RunError> {
    train_engine(Engine::new(program, transport), hyper, steps, start, batch)
}

/// [`train_rank`] with an engine, whatever its device.
///
/// # Errors
/// Those of [`Engine::step`].
///
/// # Panics
/// If the device still works after an error.
pub fn train_engine<'p, D: Device, T: Transport<'p, D>>(
    mut engine: Engine<'p, D, T>,
    hyper: Hyper,
    steps: u64,
    start: Start,
    batch: Batch,
) -> Result<Outcome, RunError> {
    engine.rehearse()?;
    let plan = engine.plan();
    let data_rank = engine.arena().coordinates().data_rank(&plan.config.mesh);
    if plan.config.offload.uses(TierKind::Disk) {
        engine.keep_states_in(Box::new(MemoryTier::new(plan, engine.arena().rank(), Haste::AtLast)));
    }
    match start {
        Start::Seed(seed) => engine.initialize(seed),
        Start::Flat(flat) => flat.iter().enumerate().for_each(|(unit, flat)| engine.load(unit, flat)),
    }
    let mut outcome = Outcome { mapped_bytes: vec![engine.arena().mapped_bytes()], ..Outcome::default() };
    for step in 0..steps {
        let ended = engine.step(&hyper, |micro_batch, ids, targets| batch(step, data_rank, micro_batch, ids, targets));
        // Otherwise the release of the device would wait for ever, before the error is reported.
        assert!(ended.is_ok() || engine.device().is_idle(), "the device still waits after {:?}", ended.err());
        let report = ended?;
        outcome.losses.push(report.loss);
        outcome.norms.push(report.gradient_norm);
        if step == 0 {
            let zero = engine.arena().coordinates().zero;
            let gradients = |unit| {
                let (start, shard) = engine.reduced_gradients(unit)?;
                assert_eq!(start, zero * shard.len(), "the shard of unit {unit} starts elsewhere");
                Some(shard)
            };
            outcome.gradients = (0..plan.units.len()).map(|unit| gradients(unit).unwrap_or_default()).collect();
        }
    }
    (outcome.moved, outcome.crossed) = (vec![engine.moved()], vec![engine.crossed()]);
    for unit in 0..plan.units.len() {
        outcome.parameters.push(engine.parameters(unit)?.unwrap_or_default());
    }
    Ok(outcome)
}

/// Compares the bytes that a rank mapped, and those that it took from its peers in this many steps, with its plan.
///
/// # Panics
/// If they differ.
pub fn assert_as_planned(plan: &Plan, rank: usize, steps: u64, moved: Moved, mapped_bytes: [usize; 2]) {
    let pipeline_stage = plan.of_rank(rank);
    let mut planned = Moved::default();
    (0..steps).for_each(|_| planned += Moved::taken(plan, rank, pipeline_stage.step));
    let config = &plan.config;
    assert_eq!(moved, planned, "rank {rank} took other bytes than planned: {config:?}");
    let planned = [private_mapping_bytes(config.device, &pipeline_stage.memory), segment_mapping_bytes(plan, rank)];
    assert_eq!(mapped_bytes, planned, "rank {rank} has other mappings than planned: {config:?}");
}

/// Compares the bytes that a rank sent to other hosts, and took from them, in this many steps with its plan.
///
/// # Panics
/// If they differ.
pub fn assert_crosses_as_planned(plan: &Plan, rank: usize, steps: u64, crossed: Crossed) {
    let (config, steps) = (&plan.config, steps as usize);
    let sent = Traffic::between_hosts(plan, rank, plan.of_rank(rank).step);
    assert_eq!(crossed.sent_bytes, steps * sent.total_bytes(), "rank {rank} sent other bytes than planned: {config:?}");
    let taken = Traffic::from_hosts(plan, rank, plan.of_rank(rank).step);
    let taken = steps * (taken.total_bytes() - taken.agree_bytes);
    assert_eq!(crossed.taken_bytes, taken, "rank {rank} took other bytes of other hosts than planned: {config:?}");
}

/// Micro-batches of noise for the tiny models, cut from one global batch: rank and micro-batch only choose the part.
pub fn noise(config: Config) -> impl Fn(u64, usize, usize, &mut [u32], &mut [u32]) + Sync {
    move |step, rank, micro_batch, ids, targets| {
        let first = (micro_batch * config.mesh.data_ranks() + rank) * ids.len();
        for (i, (id, target)) in ids.iter_mut().zip(targets).enumerate() {
            let draw = mix(step, (first + i) as u64);
            *id = (draw % 29) as u32;
            *target = (draw / 29 % 29) as u32;
        }
    }
}
