//! Parity: stage, mesh, schedule, transport, buckets, prefetch, recompute and the numbers of ranks and threads must not
//! change results.

mod activations;
mod alternating;
mod calls;
mod decay;
mod decode;
mod diagnosis;
mod evaluation;
mod forgotten;
mod initial;
mod meshes;
mod misfits;
mod muon;
mod publish;
mod regression;
mod resume;
mod serve;
mod skew;
mod specs;
mod stages;
mod states;
mod threads;
mod tiers;
mod turns;
mod widths;

use zero_core::model::Model;
use zero_plan::{Config, Precision, Width};
use zero_tests::tiny::InBothWidths;
use zero_tests::training::{HYPER, Outcome, Start, noise, train};

/// Steps of a model in the width that a configuration computes in.
fn run<M: InBothWidths>(config: Config, steps: u64) -> Outcome {
    let (start, data) = (Start::Seed(7), &noise(config));
    match config.precision.compute {
        Width::F32 => train(M::PROGRAM, config, HYPER, steps, start, data),
        Width::BF16 => train(M::Narrow::PROGRAM, config, HYPER, steps, start, data),
    }
}

/// All in f32; and layers that compute in bf16, with everything else unchanged.
const WIDTHS: [Precision; 2] = [Config::PLAIN.precision, Precision { compute: Width::BF16, ..Config::PLAIN.precision }];
