//! Draw: randomness without state. Never remembers an earlier draw.

use zero_core::random::split_mix;

/// Which training sequence to draw: a pure function of these three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Step of the run, from 0.
    pub step: u64,
    /// Index of the sequence in the step's global batch, over all ranks and micro-batches.
    pub index: u64,
}

impl Draw {
    /// 64 random bits. Draws that differ in only one field never have equal bits.
    pub fn hash(self) -> u64 {
        // Each round is a bijection of its word, and of the hash before it. So if only one word differs, the results
        // differ.
        [self.seed, self.step, self.index].into_iter().fold(0, |hash, word| split_mix(hash ^ word))
    }

    /// A number less than `bound`, uniform to within bound / 2^64.
    pub fn below(self, bound: usize) -> usize {
        assert!(bound > 0, "no number is less than 0");
        // The high word of the product (Lemire, "Fast Random Integer Generation in an Interval", 2019).
        ((u128::from(self.hash()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_field_matters() {
        let fields = || (0..20).flat_map(|seed| (0..20).flat_map(move |step| (0..20).map(move |i| (seed, step, i))));
        let hashes: HashSet<u64> = fields().map(|(seed, step, index)| Draw { seed, step, index }.hash()).collect();
        assert_eq!(hashes.len(), fields().count());
    }

    #[test]
    fn numbers_are_below_their_bound_and_uniform() {
        let mut counts = [0; 10];
        for index in 0..10_000 {
            counts[Draw { seed: 1, step: 2, index }.below(10)] += 1;
        }
        // 1000 each, with a standard deviation of 30.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
