//! Kernels: the ops of layers on the CUDA device against the processor's, on awkward shapes, at unaligned addresses,
//! with outputs that are NaN before the op, and again in another order of threads and blocks.

mod attention;
mod elementwise;
mod embedding;
mod losses;
mod norms;
mod sums;

use zero_core::device::{Buffer, Device, Element, bf16};
use zero_core::view::{View, ViewMut};
use zero_cpu::Cpu;
use zero_cuda::Cuda;
use zero_plan::Width;
use zero_tests::buffers::{noise, numbers, of, stored};
use zero_tests::pretend;

/// Elements before and after a tensor, which no op may touch. An odd number, so that no tensor is aligned to 16 bytes unless a test
/// requests it.
const MARGIN: usize = 17;

/// The value of elements that no op may touch.
const UNTOUCHED: f32 = -77.0;

/// How closely the two devices must agree.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    /// The same bits, except that a NaN may be another NaN.
    Bits,
    /// At most this far apart, relative to the largest number of the tensor; if rounded to bf16, perhaps to neighbours.
    Near(f32),
}

/// Sums of some hundred numbers in another order, and logarithms with other last bits: a few dozen times 6e-8.
const SUMS: How = How::Near(3e-6);

/// The tensors that an op has written.
type Results = Vec<(String, How, Vec<f32>)>;

/// One or several ops, on any device, in any width.
trait Case {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results;
}

/// The CUDA device on the pretend driver, if there is one.
fn cuda() -> Option<Cuda> {
    pretend::is_cuda().then(|| Cuda::open(0).expect("a pretend device"))
}

/// Numbers in memory of a device, with a margin on either side.
struct Tensor<D: Device, E> {
    buffer: Buffer<D, E>,
    start: usize,
    len: usize,
}

impl<D: Device, E: Element> Tensor<D, E> {
    fn new(device: &D, values: &[f32], start: usize) -> Self {
        let margins = [vec![UNTOUCHED; start], values.to_vec(), vec![UNTOUCHED; MARGIN]];
        Self { buffer: stored(device, &margins.concat()), start, len: values.len() }
    }

    /// At a multiple of 4096 bytes.
    fn aligned(device: &D, values: &[f32]) -> Self {
        Self::new(device, values, 0)
    }

    /// At no multiple of 16 bytes.
    fn noise(device: &D, len: usize, seed: u64) -> Self {
        Self::new(device, &noise(len, seed), MARGIN)
    }

    /// NaN, which an op that reads it would propagate.
    fn unwritten(device: &D, len: usize) -> Self {
        Self::new(device, &vec![f32::NAN; len], MARGIN)
    }

    fn view(&self) -> View<'_, D, E> {
        self.buffer.view().part(self.start, self.len)
    }

    fn view_mut(&mut self) -> ViewMut<'_, D, E> {
        self.buffer.view_mut().part(self.start, self.len)
    }

    /// Its values, after a check that the margins were not written.
    #[track_caller]
    fn values(&self, device: &D) -> Vec<f32> {
        let all = numbers(device, &self.buffer);
        let (before, rest) = all.split_at(self.start);
        let (values, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|&x| x == UNTOUCHED), "an op has written beside its tensor");
        values.to_vec()
    }
}

/// Ids in memory of a device.
fn ids<D: Device>(device: &D, ids: &[u32]) -> Buffer<D, u32> {
    of(device, ids)
}

/// Compares a case on both devices in a width, and on the CUDA device in two orders.
#[track_caller]
fn check_in<E: Element>(case: &impl Case) {
    let Some(cuda) = cuda() else { return };
    let expected = case.run::<_, E>(&Cpu::default());
    let found = case.run::<_, E>(&cuda);
    assert_eq!(cuda.failure(), None);
    compare(E::WIDTH, &found, &expected);
    pretend::seed(expected.len() as u64 + 100);
    for ((name, _, again), (_, _, once)) in case.run::<_, E>(&cuda).iter().zip(&found) {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(again), bits(once), "{name} depends on the order of threads");
    }
    assert_eq!(cuda.failure(), None);
}

/// Compares a case in both widths.
#[track_caller]
fn check(case: &impl Case) {
    check_in::<f32>(case);
    check_in::<bf16>(case);
}

#[track_caller]
fn compare(width: Width, found: &Results, expected: &Results) {
    assert!(!expected.is_empty() && found.len() == expected.len());
    for ((name, how, found), (_, _, expected)) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0, |largest: f32, x| largest.max(x.abs()));
        for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let is_same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            let is_near = match how {
                How::Bits => false,
                How::Near(tolerance) => {
                    // Neighbours in bf16 are at most a 128th apart.
                    let rounding = if width == Width::BF16 { expected.abs() / 128.0 } else { 0.0 };
                    (found - expected).abs() <= tolerance * largest + rounding
                }
            };
            assert!(is_same || is_near, "{name} [{i}] in {width:?}: {expected} here, {found} on the device ({how:?})");
        }
    }
}
