//! Softmax: down the columns of strips of scores. Never sees more of a column than one strip at a time.

use super::QUERIES;
use crate::device::cpu::math::exp_small;

/// A softmax down the columns of strips that come one after another.
pub struct Softmax {
    pub maxima: [f32; QUERIES],
    /// Of e^(score - maximum).
    pub sums: [f32; QUERIES],
}

impl Softmax {
    pub fn new() -> Self {
        Self { maxima: [f32::NEG_INFINITY; QUERIES], sums: [0.0; QUERIES] }
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

/// Scores of keys after their query := negative infinity.
#[inline(always)]
pub fn hide_future(strip: &mut [[f32; QUERIES]], first_key: usize, first_query: usize) {
    let after = first_query.saturating_sub(first_key);
    for (queries_before, row) in strip.iter_mut().skip(after).enumerate() {
        row[..queries_before].fill(f32::NEG_INFINITY);
    }
}
