//! Elementwise: copies, fills and conversions, and sums and products of elements at one index. They have the bits of
//! any other device, because each is one operation, rounded once; only a NaN may become another NaN. Never looks at
//! shapes beyond lengths.
#![allow(unsafe_code)]

use bytemuck::Pod;
use zero_plan::Width;

use super::Cuda;
use super::handle::launch::{Argument, Grid, Kernel};
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::{Element, Stored, StoredMut};
use zero_core::view::{View, ViewMut};

/// Threads of a block.
pub(super) const THREADS: usize = 256;

/// Elements of a thread.
pub(super) const EIGHT: usize = 8;

/// Addresses must be multiples of this to be read and written in the longest words.
const WORD_BYTES: u64 = 16;

const CONVERT: Kernel = Kernel::new(KernelSource::Elementwise, "convert");
const ADD: Kernel = Kernel::new(KernelSource::Elementwise, "add");
const MUL: Kernel = Kernel::new(KernelSource::Elementwise, "mul");
const SCALE: Kernel = Kernel::new(KernelSource::Elementwise, "scale");
const AXPBY: Kernel = Kernel::new(KernelSource::Elementwise, "axpby");
const FILL: Kernel = Kernel::new(KernelSource::Elementwise, "fill");
const BROADCAST: Kernel = Kernel::new(KernelSource::Elementwise, "broadcast");

/// 1 if all addresses are multiples of [`WORD_BYTES`], otherwise 0: a constant of kernels.
pub(super) fn aligned<const N: usize>(arguments: [Argument; N]) -> usize {
    let is_aligned = |argument| matches!(argument, Argument::Pointer(at) if u64::is_multiple_of(at, WORD_BYTES));
    arguments.into_iter().all(is_aligned).into()
}

/// 1 if packs of eight elements of rows that begin at these addresses can be moved in one access, otherwise 0.
/// `strides` are the elements from row to row, and the widths at which parts of a row begin.
pub(super) fn in_packs<const N: usize>(arguments: [Argument; N], strides: &[usize]) -> usize {
    if strides.iter().all(|stride| stride.is_multiple_of(EIGHT)) { aligned(arguments) } else { 0 }
}

/// Enough threads for `len` elements.
pub(super) fn over(len: usize) -> Grid {
    Grid::over(len, EIGHT, THREADS)
}

pub(super) fn copy<T: Pod>(cuda: &Cuda, to: ViewMut<Cuda, T>, from: View<Cuda, T>) {
    check_len("from", from.len(), to.len());
    if to.is_empty() {
        return;
    }
    let bytes = to.len() * size_of::<T>();
    copy_bytes(cuda, to.address().addr() as u64, from.address().addr() as u64, bytes);
}

/// Copies bytes that do not overlap: between two equally long views, or from a view into the queue's workspace.
pub(super) fn copy_bytes(cuda: &Cuda, to: u64, from: u64, bytes: usize) {
    cuda.call(("copy", to, from, bytes), || {
        let copy = cuda.context.libraries.driver.cuMemcpyAsync;
        // SAFETY: as many bytes at both addresses, which the device reaches, and which live as long as the op, by the order
        // of queues. The driver knows from an address whether it is the device's or the host's.
        let status = unsafe { copy(to, from, bytes, cuda.stream()) };
        cuda.context.check("cuMemcpyAsync", status)
    });
}

pub(super) fn fill<T: Pod>(cuda: &Cuda, to: ViewMut<Cuda, T>, value: T) {
    if to.is_empty() {
        return;
    }
    let bytes = bytemuck::bytes_of(&value);
    if bytes.iter().all(|byte| *byte == bytes[0]) {
        let (at, len) = (to.address().addr() as u64, to.len() * size_of::<T>());
        return cuda.call(("fill", at, bytes[0], len), || {
            // SAFETY: elements of a view.
            let status = unsafe { (cuda.context.libraries.driver.cuMemsetD8Async)(at, bytes[0], len, cuda.stream()) };
            cuda.context.check("cuMemsetD8Async", status)
        });
    }
    // No op uses a longer value, unless it consists of equal words.
    let mut word = [0; 8];
    assert!([2, 4, 8].contains(&bytes.len()), "a value of {} bytes, expected 1, 2, 4 or 8", bytes.len());
    word[..bytes.len()].copy_from_slice(bytes);
    let (grid, len) = (over(to.len()), to.len());
    cuda.launch(FILL.with(bytes.len()), grid, &[to.into(), len.into(), Argument::U64(u64::from_le_bytes(word))]);
}

pub(super) fn convert(cuda: &Cuda, to: StoredMut<Cuda>, from: Stored<Cuda>) {
    check_len("from", from.len(), to.len());
    let len = to.len();
    let (to, to_width) = stored_mut(to);
    let (from, from_width) = stored(from);
    let kernel = CONVERT.of(to_width).of(from_width).with(aligned([to, from]));
    cuda.launch(kernel, over(len), &[to, from, len.into()]);
}

pub(super) fn add<E: Element>(cuda: &Cuda, y: ViewMut<Cuda, E>, x: View<Cuda, E>) {
    check_len("x", x.len(), y.len());
    both(cuda, ADD, y, x);
}

pub(super) fn mul<E: Element>(cuda: &Cuda, y: ViewMut<Cuda, E>, x: View<Cuda, E>) {
    check_len("x", x.len(), y.len());
    both(cuda, MUL, y, x);
}

fn both<E: Element>(cuda: &Cuda, kernel: Kernel, y: ViewMut<Cuda, E>, x: View<Cuda, E>) {
    let len = y.len();
    let (y, x) = (y.into(), x.into());
    cuda.launch(kernel.of(E::WIDTH).with(aligned([y, x])), over(len), &[y, x, len.into()]);
}

pub(super) fn scale<E: Element>(cuda: &Cuda, y: ViewMut<Cuda, E>, factor: f32) {
    let len = y.len();
    let y = y.into();
    cuda.launch(SCALE.of(E::WIDTH).with(aligned([y])), over(len), &[y, len.into(), Argument::F32(factor)]);
}

pub(super) fn axpby<E: Element>(cuda: &Cuda, alpha: f32, x: View<Cuda, E>, beta: f32, y: ViewMut<Cuda, E>) {
    check_len("x", x.len(), y.len());
    let len = y.len();
    let (y, x) = (y.into(), x.into());
    let factors = [alpha, beta].map(Argument::F32);
    let arguments = [y, x, len.into(), factors[0], factors[1]];
    cuda.launch(AXPBY.of(E::WIDTH).with(aligned([y, x])), over(len), &arguments);
}

/// Each row of `y` := `bias`.
pub(super) fn broadcast<E: Element>(cuda: &Cuda, y: ViewMut<Cuda, E>, bias: View<Cuda, E>) {
    let (len, width) = (y.len(), bias.len());
    divided("y", len, width);
    cuda.launch(BROADCAST.of(E::WIDTH).with(width), over(len), &[y.into(), bias.into(), len.into()]);
}

/// The address of numbers, and their width.
pub(super) fn stored<'a>(numbers: Stored<Cuda>) -> (Argument<'a>, Width) {
    match numbers {
        Stored::F32(view) => (view.into(), Width::F32),
        Stored::BF16(view) => (view.into(), Width::BF16),
    }
}

/// [`stored`], for numbers to write.
pub(super) fn stored_mut<'a>(numbers: StoredMut<Cuda>) -> (Argument<'a>, Width) {
    match numbers {
        StoredMut::F32(view) => (view.into(), Width::F32),
        StoredMut::BF16(view) => (view.into(), Width::BF16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_need_aligned_addresses_and_whole_strides() {
        let [at, off, null] = [4096, 4104, 0].map(Argument::Pointer);
        assert_eq!(in_packs([at, null], &[8, 64]), 1);
        assert_eq!([in_packs([at, off], &[8]), in_packs([at], &[64, 12])], [0; 2]);
    }
}
