//! The naive device against the processor's: each op of the contract, each layer, and the training of each spec, to
//! rounding.

mod layers;
mod ops;
mod training;

use bytemuck::Pod;
use zero_plan::config::Width;
use zero_runtime::device::{Buffer, Device, Element};

/// How far two devices may be apart, next to the largest number of a tensor. They round sums of some hundred terms in
/// another order and have exponentials of their own: a few dozen times what f32 resolves, which is 6e-8. A wrong formula is
/// off by far more.
const TOLERANCE: f32 = 2e-5;

/// And where results are rounded to 8 bits: by so little before, two may be rounded apart, and the sum of two of these.
const TOLERANCE_BF16: f32 = 2.0 / 256.0;

/// What a device wrote, each tensor under a name.
type Written = Vec<(&'static str, Vec<f32>)>;

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

/// `len` reproducible values, spread evenly over (-2, 2).
fn noise(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| 4.0 * zero_runtime::random::uniform(seed, i) as f32 - 2.0).collect()
}

/// These values, in memory of the device.
fn of<D: Device, T: Pod>(device: &D, values: &[T]) -> Buffer<D, T> {
    let mut buffer = Buffer::filled(device, values.len(), T::zeroed()).expect("memory for a few elements");
    device.stage(buffer.view_mut(), |staging| staging.copy_from_slice(values));
    buffer
}

/// These values, in memory of the device, each rounded.
fn stored<D: Device, E: Element>(device: &D, values: &[f32]) -> Buffer<D, E> {
    of(device, &values.iter().map(|&x| E::narrow(x)).collect::<Vec<_>>())
}

/// What a buffer holds.
fn values<D: Device, T: Pod>(device: &D, buffer: &Buffer<D, T>) -> Vec<T> {
    let mut values = vec![T::zeroed(); buffer.view().len()];
    device.read(buffer.view(), &mut values);
    values
}

/// What a buffer holds, as f32.
fn numbers<D: Device, E: Element>(device: &D, buffer: &Buffer<D, E>) -> Vec<f32> {
    values(device, buffer).into_iter().map(E::widen).collect()
}
