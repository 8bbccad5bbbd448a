//! Flop: floating-point operations of a training step, counted as published, and the rate of this machine's matrix product. A
//! multiply-add counts 2.

use std::time::Instant;

use zero_core::device::{Element, Write, bf16};
use zero_cpu::{Bf16Products, MatrixMut, StridedMatrix, matmul_with};
use zero_runtime::plan::{Plan, Width};

/// The sizes from which the operations of a step of a GPT are counted.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Parameters of the model.
    pub params: usize,
    /// Parameters that are looked up and multiply nothing: the tables of tokens and of positions.
    pub looked_up: usize,
    /// Blocks.
    pub layers: usize,
    /// Width of the residual stream, which is heads x width of a head.
    pub width: usize,
    /// Sequences of a rank.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
}

impl Step {
    /// The step of a plan whose first unit is the embedding, and whose `layers` blocks have a residual stream of this
    /// `width`.
    pub fn of(plan: &Plan, layers: usize, width: usize) -> Self {
        let (sequences, length) = (plan.config.sequences, plan.config.length);
        Self { params: plan.params(), looked_up: plan.units[0].params, layers, width, sequences, length }
    }

    /// 6 for each parameter and token, and 12 x layers x width x length for each token's attention, without regard to the causal
    /// mask (Chowdhery et al., 2022 (PaLM), appendix B).
    pub fn published(&self) -> f64 {
        (self.sequences * self.length) as f64 * (6 * self.params + self.attention()) as f64
    }

    /// The same without needless operations: those of parameters that are looked up, and half of the attention's.
    pub fn strict(&self) -> f64 {
        (self.sequences * self.length) as f64 * (6 * (self.params - self.looked_up) + self.attention() / 2) as f64
    }

    fn attention(&self) -> usize {
        12 * self.layers * self.width * self.length
    }
}

/// Side of the square matrices of a product, ours and the peer's.
pub const SIDE: usize = 1024;
/// Number of products from which the peak rate is taken.
const PRODUCTS: usize = 20;

/// Operations a second of the fastest of several products of matrices of this width, on one thread.
pub fn gemm_peak_per_s(width: Width) -> f64 {
    2.0 * (SIDE * SIDE * SIDE) as f64 / fastest_product_s(width, PRODUCTS)
}

/// Seconds of the fastest of `products` products of square matrices of this width, on one thread.
pub fn fastest_product_s(width: Width, products: usize) -> f64 {
    match width {
        Width::F32 => fastest_s::<f32>(Bf16Products::chosen(), products),
        Width::BF16 => fastest_bf16_product_s(Bf16Products::chosen(), products),
    }
}

/// Seconds of the fastest of `products` products of square matrices of bf16 by these instructions, on one thread.
pub fn fastest_bf16_product_s(instructions: Bf16Products, products: usize) -> f64 {
    fastest_s::<bf16>(instructions, products)
}

fn fastest_s<E: Element>(instructions: Bf16Products, products: usize) -> f64 {
    let filled = |value| vec![E::narrow(value); SIDE * SIDE];
    let (a, b, mut c) = (filled(0.5), filled(0.25), filled(0.0));
    let mut product_s = || {
        let (a, b) = (StridedMatrix::new(&a, SIDE, SIDE), StridedMatrix::new(&b, SIDE, SIDE));
        let start = Instant::now();
        matmul_with(instructions, MatrixMut::new(&mut c, SIDE, SIDE), a, b, Write::Set);
        start.elapsed().as_secs_f64()
    };
    (0..products).map(|_| product_s()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_worked_by_hand() {
        // 5 x 7 = 35 tokens. 6 x 1000 = 6000 for the parameters and 12 x 2 x 4 x 7 = 672 for attention: 35 x 6672.
        let step = Step { params: 1000, looked_up: 100, layers: 2, width: 4, sequences: 5, length: 7 };
        assert_eq!(step.published(), 233_520.0);
        // 6 x 900 = 5400 and 336: 35 x 5736.
        assert_eq!(step.strict(), 200_760.0);
    }
}
