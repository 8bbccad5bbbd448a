//! A model of numbers instead of classes: it learns a sine. With `RAISE` set, its targets are that much higher.

use std::process::ExitCode;

use zero_core::random::uniform;
use zero_runtime::data::{Dataset, Draw};
use zero_runtime::prelude::*;

#[zero(stage = 2, ranks = 2, sequences = 4, length = 3)]
struct Sine {
    hidden: (Linear<1, 16>, Silu),
    out: Linear<16, 2>,
    head: MseHead<2>,
}

/// A number, and its sine and cosine.
struct Points {
    raise: f32,
}

impl Dataset for Points {
    type Input = Features<1>;
    type Target = Features<2>;

    fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [f32]) {
        for (i, (x, target)) in (0..).zip(input.iter_mut().zip(targets.chunks_exact_mut(2))) {
            *x = 6.0 * uniform(draw.hash(), i) as f32 - 3.0;
            target.copy_from_slice(&[x.sin() + self.raise, x.cos() + self.raise]);
        }
    }

    fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [f32]) {
        self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
    }

    fn held_out_count(&self) -> usize {
        16
    }
}

fn main() -> ExitCode {
    let raise = std::env::var("RAISE").map_or(0.0, |raise| raise.parse().expect("a number"));
    zero_runtime::main_with::<Sine>(Points { raise })
}
