//! Parity: what stage, mesh, schedule, transport, buckets, prefetch, recompute and the numbers of ranks and threads must
//! not change.

mod calls;
mod diagnosis;
mod evaluation;
mod forgotten;
mod initial;
mod meshes;
mod misfits;
mod regression;
mod skew;
mod specs;
mod stages;
mod states;
mod threads;
mod turns;
mod widths;

use zero_plan::Config;
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::training::{HYPER, Outcome, Start, noise, train};

fn run<M: Model<Input = Tokens, Target = Tokens>>(config: Config, steps: u64) -> Outcome {
    train::<M>(config, HYPER, steps, Start::Seed(7), &noise(config))
}
