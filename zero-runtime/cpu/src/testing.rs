//! Helpers of the kernels' tests: reproducible inputs and comparison with an f64 reference. Never part of a build.

use zero_plan::Width;

use zero_core::device::{AdamW, Element};

/// Awkward lengths: less than a whole vector, one element short, exact, one over, several vectors.
pub const LENGTHS: [usize; 8] = [1, 3, 15, 16, 17, 33, 65, 130];

/// A third step of AdamW with every part enabled.
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

/// [`noise`], stored.
pub fn stored<E: Element>(len: usize, seed: u64) -> Vec<E> {
    noise(len, seed).into_iter().map(E::narrow).collect()
}

pub fn to_f64<E: Element>(x: &[E]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.widen())).collect()
}

/// The bits of stored numbers, widened to f32.
pub fn bits<E: Element>(x: &[E]) -> Vec<u32> {
    x.iter().map(|x| x.widen().to_bits()).collect()
}

/// The relative error of storing a result, beyond that of f32: half a unit in the last of the 8 bits of a bf16.
fn rounding<E: Element>() -> f64 {
    match E::WIDTH {
        Width::F32 => 0.0,
        Width::BF16 => f64::powi(2.0, -8),
    }
}

/// Asserts that each element found is one rounding, at most, from a number within `tolerance` x (1 + |expected|) of the
/// expected number.
#[track_caller]
pub fn assert_close<E: Element>(name: &str, found: &[E], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "length of {name}");
    for (i, (found, &expected)) in found.iter().zip(expected).enumerate() {
        let found = found.widen();
        let error = (f64::from(found) - expected).abs();
        let computed = tolerance * (1.0 + expected.abs());
        let bound = computed + rounding::<E>() * (expected.abs() + computed);
        assert!(error <= bound, "{name}[{i}]: found {found}, expected {expected}, error {error:e} over {bound:e}");
    }
}
