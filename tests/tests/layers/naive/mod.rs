//! The naive device against the processor's: each op of the contract, each layer, and the training of each spec, to
//! rounding. It also compares the bytes that ops touch with their places in the plan.

mod layers;
mod ops;
mod touches;
mod training;

use zero_plan::Width;
use zero_tests::buffers::Written;

/// How far two devices may be apart, relative to the largest number of a tensor. They round sums of some hundred terms
/// in different orders and have different exponentials: a few dozen times the resolution of f32, which is 6e-8. A wrong formula is
/// off by far more.
const TOLERANCE: f32 = 2e-5;

/// The same for results that are rounded to 8 bits: two numbers that differ so little may round to different values, and so may
/// both terms of a sum.
const TOLERANCE_BF16: f32 = 2.0 / 256.0;

#[track_caller]
fn assert_alike(width: Width, found: &Written, expected: &Written) {
    let tolerance = if width == Width::F32 { TOLERANCE } else { TOLERANCE_BF16 };
    assert!(!expected.is_empty());
    assert_eq!(found.len(), expected.len());
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let is_near = (found - expected).abs() <= tolerance * largest;
            assert!(is_near, "{name} [{i}]: the processor has {expected}, the naive device {found}");
        }
    }
}
