//! Helpers of the kernels' tests: reproducible inputs and comparison with an f64 reference. Never part of a build.

use crate::device::AdamW;

/// Awkward lengths: empty of whole vectors, one short, exact, one over, several.
pub const LENGTHS: [usize; 8] = [1, 3, 15, 16, 17, 33, 65, 130];

/// A third step of AdamW with every part on.
pub const STEP: AdamW = AdamW {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.1,
    grad_scale: 0.5,
    correction1: 0.271,
    correction2: 0.002_997,
};

/// `len` reproducible values, spread evenly over (-2, 2).
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    (0..len).map(|_| next()).collect()
}

pub fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Asserts |found - expected| <= tolerance x (1 + |expected|), element by element.
#[track_caller]
pub fn assert_close(name: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "length of {name}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(
            error <= tolerance * (1.0 + expected.abs()),
            "{name}[{i}]: found {found}, expected {expected}, error {error:e} over {tolerance:e}"
        );
    }
}
