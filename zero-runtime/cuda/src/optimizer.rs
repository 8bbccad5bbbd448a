//! Optimizer: one step of AdamW, with the processor's bits, and the check that all numbers are finite. Never involves
//! the host in a step.

use zero_plan::Width;

use super::Cuda;
use super::elementwise::{EIGHT, THREADS, aligned, over, stored, stored_mut};
use super::grid::words;
use super::handle::launch::{Argument, Grid, Kernel};
use super::lengths::check_len;
use super::source::KernelSource;
use zero_core::device::{AdamW, DecayRun, HyperBlock, Kernels, ReportBlock, Storage, Stored, StoredMut, Weights};
use zero_core::view::{View, ViewMut};

const UPDATE: Kernel = Kernel::new(KernelSource::Optimizer, "update");
const ADAMW: Kernel = Kernel::new(KernelSource::Optimizer, "adamw");
const FIND_INFINITE: Kernel = Kernel::new(KernelSource::Optimizer, "find_infinite");

/// Blocks of a step for each multiprocessor: each block computes the factors once, so there are only as many blocks as
/// run at a time.
const BLOCKS: usize = 8;

/// The tensors of a step: addresses in the order of the kernels' arguments, and the kernel for their widths.
struct StepTensors<'a> {
    addresses: [Argument<'a>; 5],
    kernel: Kernel,
    len: usize,
}

impl StepTensors<'_> {
    fn new(
        kernel: Kernel,
        weights: Weights<Cuda>,
        grads: Stored<Cuda>,
        m: StoredMut<Cuda>,
        v: StoredMut<Cuda>,
    ) -> Self {
        let len = weights.params.len();
        for (name, found) in [("grads", grads.len()), ("m", m.len()), ("v", v.len())] {
            check_len(name, found, len);
        }
        let ([copied, updated], [params_width, updated_width]) = weight_addresses(weights);
        let ((grads, grads_width), (m, m_width), (v, v_width)) = (stored(grads), stored_mut(m), stored_mut(v));
        let addresses = [copied, updated, grads, m, v];
        let widths: [Width; 5] = [params_width, updated_width, grads_width, m_width, v_width];
        let kernel = widths.into_iter().fold(kernel, Kernel::of).with(aligned(addresses));
        Self { addresses, kernel, len }
    }

    fn grid(&self, cuda: &Cuda) -> Grid {
        let Grid { blocks, threads } = Grid::over(self.len, EIGHT, THREADS);
        Grid { blocks: blocks.min(BLOCKS * cuda.context.multiprocessors), threads }
    }
}

/// The addresses of the weights that layers read, if they are a separate copy, and of the weights that are updated; and
/// the widths of both.
pub(super) fn weight_addresses<'a>(weights: Weights<Cuda>) -> ([Argument<'a>; 2], [Width; 2]) {
    let len = weights.params.len();
    let (params, params_width) = stored_mut(weights.params);
    match weights.master {
        Some(master) => {
            check_len("master", master.len(), len);
            let (updated, updated_width) = stored_mut(master);
            ([params, updated], [params_width, updated_width])
        }
        None => ([Argument::Pointer(0), params], [params_width; 2]),
    }
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn update(
    cuda: &Cuda,
    runs: &[DecayRun],
    hyper: View<Cuda, HyperBlock>,
    report: View<Cuda, ReportBlock>,
    weights: Weights<Cuda>,
    grads: Stored<Cuda>,
    m: StoredMut<Cuda>,
    v: StoredMut<Cuda>,
) {
    check_len("hyper", hyper.len(), 1);
    check_len("report", report.len(), 1);
    let tensors = StepTensors::new(UPDATE, weights, grads, m, v);
    let count = runs.len();
    assert!(count <= DecayRun::MOST, "{count} runs of weight decay, expected {} at most", DecayRun::MOST);
    // The fields of `Runs` in `optimizer.cu`: the end of each run, and then whether it decays.
    let (mut numbers, mut end) = ([0u64; 2 * DecayRun::MOST], 0);
    for (i, &DecayRun { len, decays }) in runs.iter().enumerate() {
        end += len;
        (numbers[i], numbers[count + i]) = (end as u64, decays.into());
    }
    check_len("runs", end, tensors.len);
    if count == 0 {
        return;
    }
    let [params, updated, grads, m, v] = tensors.addresses;
    let words = words(&numbers[..2 * count]);
    let arguments = [params, updated, grads, m, v, tensors.len.into(), hyper.into(), report.into(), words];
    cuda.launch(tensors.kernel.with(count), tensors.grid(cuda), &arguments);
}

pub(super) fn adamw<'a>(
    cuda: &Cuda,
    step: &AdamW,
    weights: impl Into<Weights<'a, Cuda>>,
    grads: impl Into<Stored<'a, Cuda>>,
    m: impl Into<StoredMut<'a, Cuda>>,
    v: impl Into<StoredMut<'a, Cuda>>,
) {
    let tensors = StepTensors::new(ADAMW, weights.into(), grads.into(), m.into(), v.into());
    let hyper = HyperBlock {
        lr: step.lr,
        beta1: step.beta1,
        beta2: step.beta2,
        momentum: 0.0,
        epsilon: step.eps,
        weight_decay: step.weight_decay,
        clip: f64::INFINITY,
        correction1: step.correction1,
        correction2: step.correction2,
    };
    let [params, updated, grads, m, v] = tensors.addresses;
    let hyper = Argument::Bytes(bytemuck::bytes_of(&hyper));
    let arguments = [params, updated, grads, m, v, tensors.len.into(), hyper, Argument::F64(step.grad_scale)];
    cuda.launch(tensors.kernel, tensors.grid(cuda), &arguments);
}

pub(super) fn all_finite<'a>(cuda: &Cuda, x: impl Into<Stored<'a, Cuda>>) -> bool {
    let x = x.into();
    let (len, (x, width)) = (x.len(), stored(x));
    let (scratch, _) = cuda.scratch();
    if cuda.has_failed() {
        return false;
    }
    let mut found = word(scratch);
    cuda.fill(found.reborrow(), 0);
    let kernel = FIND_INFINITE.of(width).with(aligned([x]));
    cuda.launch(kernel, over(len), &[x, len.into(), Argument::Pointer(scratch)]);
    let mut is_any = [1u32];
    cuda.read(found.as_view(), &mut is_any);
    is_any == [0]
}

/// The first word of the workspace.
#[allow(unsafe_code)]
fn word<'a>(scratch: u64) -> ViewMut<'a, Cuda, u32> {
    // SAFETY: aligned, initialised device memory, which only the op that asks for it uses, in its queue.
    unsafe { ViewMut::from_raw(std::ptr::without_provenance_mut(scratch as usize), 1) }
}
