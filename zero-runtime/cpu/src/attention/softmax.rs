//! Softmax: down the columns of strips of scores. Never sees more of a column than one strip at a time.

use super::QUERIES;
use crate::math::exp_small;
use crate::simd::{max, sum};

/// A softmax down the columns of strips, one strip after another.
pub struct Softmax {
    pub maxima: [f32; QUERIES],
    /// Sums of e^(score - maximum).
    pub sums: [f32; QUERIES],
}

impl Softmax {
    pub fn new() -> Self {
        // Finite, so that hidden scores have no weight even if all scores so far are hidden: their difference from the
        // maximum is negative infinity.
        Self { maxima: [f32::MIN; QUERIES], sums: [0.0; QUERIES] }
    }

    /// `strip` := e^(strip - the new maxima); returns the factors for earlier exponentials.
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
    /// The sum of e^(score - maximum).
    pub sum: f32,
}

impl RowSoftmax {
    pub const NEW: Self = Self { max: f32::MIN, sum: 0.0 };

    /// `scores` := e^(scores - the new maximum); returns the factor for earlier exponentials.
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

/// Sets the scores of keys after their query to negative infinity. The query of the first column is at `position`, and
/// the other queries follow.
#[inline(always)]
pub fn hide_future(strip: &mut [[f32; QUERIES]], first_key: usize, position: usize) {
    let after = position.saturating_sub(first_key);
    let before_first = first_key.saturating_sub(position);
    for (queries_before, row) in strip.iter_mut().skip(after).enumerate() {
        row[..before_first + queries_before].fill(f32::NEG_INFINITY);
    }
}

/// Sets the scores of keys outside the window of their query, `window` tokens before it or more, to negative infinity.
#[inline(always)]
pub fn hide_past(strip: &mut [[f32; QUERIES]], first_key: usize, position: usize, window: usize) {
    for (key, row) in strip.iter_mut().enumerate() {
        let first_without = (first_key + key).saturating_add(window).saturating_sub(position);
        row[first_without.min(QUERIES)..].fill(f32::NEG_INFINITY);
    }
}
