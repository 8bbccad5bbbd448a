//! What lies below the kernels of layers: copies, elementwise ops, sums, products and the optimizer against the processor's
//! device; queues, staging, and what is said when a device cannot be had.

mod carried;
mod elementwise;
mod graphs;
mod muon;
mod optimizer;
mod products;
mod queues;
mod refusals;
mod sums;

use bytemuck::Pod;
use zero_runtime::device::{Buffer, Cpu, Cuda, Device, Element};
use zero_runtime::view::{View, ViewMut};
use zero_tests::buffers::{noise, of, values};
use zero_tests::pretend;

/// The first pretend device; none where there is no compiler.
fn device() -> Option<Cuda> {
    pretend::is_cuda().then_some(())?;
    Some(Cuda::open(0).expect("a pretend device"))
}

/// That a device has left the processor's bits.
fn alike(what: &str, on_cuda: &[u8], on_cpu: &[u8]) {
    assert_eq!(on_cuda.len(), on_cpu.len(), "{what}");
    if let Some(at) = (0..on_cuda.len()).find(|&at| on_cuda[at] != on_cpu[at]) {
        panic!("{what}: byte {at} of {} is {:#04x}, expected {:#04x}", on_cuda.len(), on_cuda[at], on_cpu[at]);
    }
}

/// The bytes of a buffer; panics if the device has failed.
fn bytes<D: Device, T: Pod>(device: &D, buffer: &Buffer<D, T>) -> Vec<u8> {
    let values = values(device, buffer);
    assert_eq!(device.failure(), None);
    bytemuck::cast_slice(&values).to_vec()
}

/// Reproducible numbers in memory of a device, and `before` of them that a view leaves out: so that it begins at any address.
struct Shifted<D: Device, E> {
    buffer: Buffer<D, E>,
    before: usize,
}

impl<D: Device, E: Element> Shifted<D, E> {
    fn new(device: &D, len: usize, before: usize, seed: u64) -> Self {
        let numbers: Vec<E> = noise(before + len, seed).into_iter().map(E::narrow).collect();
        Self { buffer: of(device, &numbers), before }
    }

    fn view(&self) -> View<'_, D, E> {
        self.buffer.view().split_at(self.before).1
    }

    fn view_mut(&mut self) -> ViewMut<'_, D, E> {
        self.buffer.view_mut().split_at(self.before).1
    }

    /// All of it: nothing may be written before the view.
    fn bytes(&self, device: &D) -> Vec<u8> {
        bytes(device, &self.buffer)
    }
}

/// The processor.
const CPU: Cpu = Cpu::ONE_THREAD;
