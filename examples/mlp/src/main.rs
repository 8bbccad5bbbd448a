//! A classifier of points on three interleaved spirals: a model of features instead of tokens, with its own dataset.

use zero_runtime::data::{Dataset, Draw, normal, uniform};
use zero_runtime::layers::Classifier;
use zero_runtime::prelude::*;

const CLASSES: usize = 3;

#[zero(stage = 3, prefetch = 2, sequences = 128, length = 1)]
struct Mlp {
    input: (Linear<2, 64>, Silu),
    hidden: [(RmsNorm<64>, Linear<64, 64>, Silu); 2],
    head: Classifier<64, CLASSES>,
}

/// Points on the arms of a spiral, one arm a class, with some noise.
struct Spirals;

impl Dataset for Spirals {
    type Input = Features<2>;
    type Target = Tokens;

    fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [u32]) {
        let seed = draw.hash();
        for (i, (point, target)) in (0..).zip(input.chunks_exact_mut(2).zip(targets)) {
            let class = (uniform(seed, 4 * i) * CLASSES as f64) as u32;
            let along = uniform(seed, 4 * i + 1);
            let turn = std::f64::consts::TAU * (along + f64::from(class) / CLASSES as f64);
            let noise = 0.03 * normal(seed, 4 * i + 2);
            *target = class;
            point.copy_from_slice(&[(along * turn.cos()) as f32 + noise, (along * turn.sin()) as f32 - noise]);
        }
    }

    fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [u32]) {
        // Drawn at a step that no run reaches.
        self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
    }

    fn held_out_count(&self) -> usize {
        4096
    }
}

fn main() -> std::process::ExitCode {
    zero_runtime::main_with::<Mlp>(Spirals)
}
