//! Softmax: down the columns of strips of scores. Never sees more of a column than one strip at a time.

use super::QUERIES;
use crate::device::cpu::math::exp_small;
use crate::device::cpu::simd::{max, sum};

/// A softmax down the columns of strips that come one after another.
pub struct Softmax {
    pub maxima: [f32; QUERIES],
    /// Of e^(score - maximum).
    pub sums: [f32; QUERIES],
}

impl Softmax {
    pub fn new() -> Self {
        // Finite, so that what is hidden has no weight where all that came so far is: its difference is negative infinity.
        Self { maxima: [f32::MIN; QUERIES], sums: [0.0; QUERIES] }
    }

    /// `strip` := e^(strip - the new maxima); gives what earlier exponentials are to be multiplied by.
    #[inline(always)]
    pub fn advance(&mut self, strip: &mut [[f32; QUERIES]]) -> [f32; QUERIES] {
        let before = self.maxima;
        for row in &*strip {
            for (max, &score) in self.maxima.iter_mut().zip(row) {
                *max = if score > *max { score } else { *max };
            }
        }
        let mut factors = [0.0; QUERIES];
        for i in 0..QUERIES {
            factors[i] = exp_small(before[i] - self.maxima[i]);
            self.sums[i] *= factors[i];
        }
        for row in strip {
            for ((weight, max), sum) in row.iter_mut().zip(&self.maxima).zip(&mut self.sums) {
                *weight = exp_small(*weight - max);
                *sum += *weight;
            }
        }
        factors
    }
}

/// [`Softmax`] of one query, whose scores lie one after another.
#[derive(Clone, Copy)]
pub struct RowSoftmax {
    pub max: f32,
    /// Of e^(score - maximum).
    pub sum: f32,
}

impl RowSoftmax {
    pub const NEW: Self = Self { max: f32::MIN, sum: 0.0 };

    /// `scores` := e^(scores - the new maximum); gives what earlier exponentials are to be multiplied by.
    #[inline(always)]
    pub fn advance(&mut self, scores: &mut [f32]) -> f32 {
        let largest = max(scores);
        let before = self.max;
        self.max = if largest > before { largest } else { before };
        for score in scores.iter_mut() {
            *score = exp_small(*score - self.max);
        }
        let factor = exp_small(before - self.max);
        self.sum = self.sum * factor + sum([&*scores], |[weight]| weight);
        factor
    }
}

/// Scores of keys after their query := negative infinity. The query of the first column stands at `position`, the others
/// follow.
#[inline(always)]
pub fn hide_future(strip: &mut [[f32; QUERIES]], first_key: usize, position: usize) {
    let after = position.saturating_sub(first_key);
    let before_first = first_key.saturating_sub(position);
    for (queries_before, row) in strip.iter_mut().skip(after).enumerate() {
        row[..before_first + queries_before].fill(f32::NEG_INFINITY);
    }
}

/// Scores of keys that have left the window of their query := negative infinity: those `window` tokens before it, or more.
#[inline(always)]
pub fn hide_past(strip: &mut [[f32; QUERIES]], first_key: usize, position: usize, window: usize) {
    for (key, row) in strip.iter_mut().enumerate() {
        let first_without = (first_key + key).saturating_add(window).saturating_sub(position);
        row[first_without.min(QUERIES)..].fill(f32::NEG_INFINITY);
    }
}
