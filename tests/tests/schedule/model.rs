//! Models to plan: random ones, and makers of small ones with chosen sizes. Never knows how they are planned.

use proptest::prelude::*;
use zero_plan::{Config, PlanBuf, Transport, Unit};

/// A model and a configuration of it.
#[derive(Clone, Debug)]
pub struct Model {
    pub config: Config,
    pub units: Vec<Unit>,
}

impl Model {
    /// A model whose units have `params`; the last shares the parameters of unit `tied` instead, if that is given.
    pub fn new(config: Config, params: &[usize], tied: Option<usize>) -> Self {
        let mut units: Vec<Unit> = params.iter().enumerate().map(|(i, &params)| unit(i, params)).collect();
        if let Some(owner) = tied {
            tie_last(&mut units, owner, params[owner]);
        }
        Self { config, units }
    }

    pub fn plan(&self) -> PlanBuf {
        PlanBuf::new("Random", self.config, &self.units)
    }
}

fn unit(source: usize, params: usize) -> Unit {
    let (saved, workspace, input, output) = (3 + source, source, 5, 5);
    Unit { field: "unit", position: 0, index: None, params, takes: params, source, saved, workspace, input, output }
}

fn tie_last(units: &mut [Unit], owner: usize, takes: usize) {
    let last = units.last_mut().expect("a model has units");
    *last = Unit { params: 0, takes, source: owner, ..*last };
}

/// Two ranks, one micro-batch of six tokens, and every unit in a bucket of its own.
pub fn config(stage: u8) -> Config {
    Config {
        stage,
        ranks: 2,
        prefetch: 1,
        bucket_bytes: 1,
        sequences: 2,
        length: 3,
        micro_batches: 1,
        transport: Transport::Local,
        memory_bytes: None,
    }
}

/// Small models that have between them what schedules can have: every stage and transport, buckets of one and of several
/// units, a tied unit, units without parameters at either end and in the middle, and slots for all units or for few.
pub fn small_models() -> Vec<Model> {
    let mut models = Vec::new();
    for stage in 0..=3 {
        for (params, tied) in [
            (&[40, 7, 90][..], None),
            (&[9, 70, 20, 0], Some(1)),
            (&[0, 50, 0, 33, 0], None),
            (&[5, 6, 0], Some(1)),
            (&[8], None),
        ] {
            for (micro_batches, prefetch, bucket_bytes) in [(1, 1, 1), (2, 0, 300), (2, 2, 1), (3, 7, 1)] {
                let transport = if prefetch > 1 { Transport::Shm } else { Transport::Local };
                let config = Config { micro_batches, prefetch, bucket_bytes, transport, ..config(stage) };
                models.push(Model::new(config, params, tied));
            }
        }
    }
    models
}

/// Any model of up to `units_max` units, under any configuration.
pub fn models(units_max: usize) -> impl Strategy<Value = Model> {
    (
        configs(),
        prop::collection::vec(sizes(), 1..=units_max),
        prop::option::of((any::<prop::sample::Index>(), 0..=100_usize)),
    )
        .prop_map(|(config, sizes, tied)| Model { config, units: chain(&sizes, tied) })
}

fn configs() -> impl Strategy<Value = Config> {
    let bucket_bytes = prop_oneof![1..=200_usize, 1..=60_000_usize, Just(usize::MAX)];
    let transport = prop_oneof![Just(Transport::Local), Just(Transport::Shm)];
    (0..=3_u8, 1..=8_usize, 0..=15_usize, bucket_bytes, 1..=4_usize, transport, 1..=3_usize, 1..=7_usize).prop_map(
        |(stage, ranks, prefetch, bucket_bytes, micro_batches, transport, sequences, length)| Config {
            stage,
            ranks,
            prefetch,
            bucket_bytes,
            sequences,
            length,
            micro_batches,
            transport,
            memory_bytes: None,
        },
    )
}

/// Parameters, saved, workspace and output of a unit. Many units have few parameters or none: there the special cases are.
fn sizes() -> impl Strategy<Value = [usize; 4]> {
    let params = prop_oneof![2 => Just(0_usize), 2 => 1..=40_usize, 4 => 1..=5_000_usize];
    (params, 0..=90_usize, 0..=90_usize, 1..=90_usize).prop_map(<[usize; 4]>::from)
}

/// Units that take what the one before gives. `tied` picks the owner of the last unit's parameters, and how many percent
/// of them it takes.
fn chain(sizes: &[[usize; 4]], tied: Option<(prop::sample::Index, usize)>) -> Vec<Unit> {
    let mut input = 11;
    let mut units = Vec::new();
    for (i, &[params, saved, workspace, output]) in sizes.iter().enumerate() {
        units.push(Unit { saved, workspace, input, output, ..unit(i, params) });
        input = output;
    }
    if let (Some((owner, percent)), [_, _, ..]) = (tied, units.as_slice()) {
        let owner = owner.index(units.len() - 1);
        let takes = units[owner].params * percent / 100;
        tie_last(&mut units, owner, takes);
    }
    units
}
