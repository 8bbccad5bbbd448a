//! The naive device against the processor's: each op of the contract, and each layer, to rounding.

mod layers;
mod ops;
mod training;

/// How far two devices may be apart, next to the largest number of a tensor. They round sums of some hundred terms in
/// another order and have exponentials of their own: a few dozen times what f32 resolves, which is 6e-8. A wrong formula is
/// off by far more.
const TOLERANCE: f32 = 2e-5;

/// What a device wrote, each tensor under a name.
type Written = Vec<(&'static str, Vec<f32>)>;

#[track_caller]
fn assert_alike(found: &Written, expected: &Written) {
    assert!(!expected.is_empty());
    assert_eq!(found.len(), expected.len());
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let is_near = (found - expected).abs() <= TOLERANCE * largest;
            assert!(is_near, "{name} [{i}]: the processor has {expected}, the naive device {found}");
        }
    }
}

/// `len` reproducible values, spread evenly over (-2, 2).
fn noise(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| 4.0 * zero_runtime::random::uniform(seed, i) as f32 - 2.0).collect()
}
