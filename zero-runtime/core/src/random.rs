//! Random: numbers that are pure functions of a seed and a counter, so that any rank can make any of them. Never keeps
//! state.

/// The SplitMix64 generator's output in state `state` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014, with Stafford's thirteenth mixer): a bijection.
#[inline]
pub fn split_mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 random bits for a counter under a seed.
#[inline]
pub fn mix(seed: u64, counter: u64) -> u64 {
    split_mix(split_mix(seed) ^ counter)
}

/// Uniform in [0, 1), from the upper 53 bits.
#[inline]
pub fn uniform(seed: u64, counter: u64) -> f64 {
    (mix(seed, counter) >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal, by the transform of Box and Muller.
#[inline]
pub fn normal(seed: u64, counter: u64) -> f32 {
    // In (0, 1]: the logarithm of 0 is infinite.
    let radius = (-2.0 * (1.0 - uniform(seed, 2 * counter)).ln()).sqrt();
    (radius * (core::f64::consts::TAU * uniform(seed, 2 * counter + 1)).cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_like_the_published_generator() {
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(split_mix(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let draws: Vec<f64> = (0..100_000).map(|i| f64::from(normal(7, i))).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        // Four standard errors.
        assert!(mean.abs() < 0.013, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.018, "variance {variance}");
    }

    #[test]
    fn seeds_and_counters_do_not_collide() {
        let mut all: Vec<u64> = (0..64).flat_map(|seed| (0..64).map(move |counter| mix(seed, counter))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 64 * 64);
    }
}
