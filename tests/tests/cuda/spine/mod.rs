//! Ops below the kernels of layers: copies, elementwise ops, sums, products and the optimizer against the processor's
//! device; queues, staging, and errors when a device is not available.

mod carried;
mod elementwise;
mod graphs;
mod muon;
mod optimizer;
mod products;
mod queues;
mod refusals;
mod sums;

use std::fmt::Debug;

use bytemuck::Pod;
use zero_core::device::{Buffer, Device, Element, HyperBlock, ReportBlock};
use zero_core::view::{View, ViewMut};
use zero_cpu::Cpu;
use zero_cuda::Cuda;
use zero_tests::buffers::{noise, of, values};
use zero_tests::pretend;

/// The host's numbers for a step, to test the ops of an optimizer with.
const HYPER: HyperBlock = HyperBlock {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.999,
    momentum: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    clip: 1.0,
    correction1: 0.271,
    correction2: 0.002_997,
};

/// The report of that step.
const REPORT: ReportBlock = ReportBlock { loss: 1.0, gradient_norm: 2.0, grad_scale: 0.3, is_finite: 1.0 };

/// The first pretend device; none without a compiler.
fn device() -> Option<Cuda> {
    pretend::is_cuda().then_some(())?;
    Some(Cuda::open(0).expect("a pretend device"))
}

/// Asserts that a device has computed the processor's bits.
fn alike(what: &str, on_cuda: &[u8], on_cpu: &[u8]) {
    assert_eq!(on_cuda.len(), on_cpu.len(), "{what}");
    if let Some(at) = (0..on_cuda.len()).find(|&at| on_cuda[at] != on_cpu[at]) {
        panic!("{what}: byte {at} of {} is {:#04x}, expected {:#04x}", on_cuda.len(), on_cuda[at], on_cpu[at]);
    }
}

/// Asserts that the tensors after a step have the processor's bits, in each way of requesting the step: with one element, with
/// several blocks, and from an odd element on.
fn steps_alike<W: Copy + Debug>(
    ways: &[W],
    on_cuda: impl Fn(&Cuda, W, [usize; 2]) -> Vec<Vec<u8>>,
    on_cpu: impl Fn(&Cpu, W, [usize; 2]) -> Vec<Vec<u8>>,
) {
    let Some(cuda) = device() else { return };
    for &way in ways {
        for sizes in [[1, 0], [2051, 0], [77, 1]] {
            let (found, expected) = (on_cuda(&cuda, way, sizes), on_cpu(&CPU, way, sizes));
            assert_eq!(found.len(), expected.len());
            for (tensor, (found, expected)) in found.iter().zip(&expected).enumerate() {
                alike(&format!("tensor {tensor} of {sizes:?}, {way:?}"), found, expected);
            }
        }
    }
}

/// The bytes of a buffer; panics if the device has failed.
fn bytes<D: Device, T: Pod>(device: &D, buffer: &Buffer<D, T>) -> Vec<u8> {
    let values = values(device, buffer);
    assert_eq!(device.failure(), None);
    bytemuck::cast_slice(&values).to_vec()
}

/// Reproducible numbers in memory of a device. Views skip the first `before` of them, so that they begin at any address.
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

    /// The whole buffer: nothing may be written before the view.
    fn bytes(&self, device: &D) -> Vec<u8> {
        bytes(device, &self.buffer)
    }
}

/// The processor.
const CPU: Cpu = Cpu::ONE_THREAD;
