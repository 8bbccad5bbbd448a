//! Sample: inputs and targets for a trial of a layer.

use super::away_from_zero;
use zero_core::layer::{Activation, Features, Tokens};
use zero_core::random::mix;

/// A type of which [`super::gradcheck`] can make inputs and targets.
pub trait Sample: Activation {
    /// Whether a layer with this input computes gradients of it.
    const DIFFERENTIABLE: bool;
    /// Element `i`, as an f32 of the same bits.
    fn cell(seed: u64, i: u64) -> f32;
    /// The elements of `tokens` tokens.
    fn cells(seed: u64, tokens: usize) -> Vec<f32> {
        (0..(tokens * Self::WIDTH) as u64).map(|i| Self::cell(seed, i)).collect()
    }
}

impl<const W: usize> Sample for Features<W> {
    const DIFFERENTIABLE: bool = true;
    fn cell(seed: u64, i: u64) -> f32 {
        away_from_zero(seed, i)
    }
}

impl Sample for Tokens {
    const DIFFERENTIABLE: bool = false;
    fn cell(seed: u64, i: u64) -> f32 {
        // Few ids, so that some repeat, and small, so that any vocabulary has them.
        f32::from_bits((mix(seed, i) % 3) as u32)
    }
}
