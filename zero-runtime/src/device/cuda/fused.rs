//! Fused: attention by the kernels of cuDNN, where a plan says so. The way to compute a shape is chosen once, before
//! the first step, and all later calls use it. Works in the room that the plan has for it, and never falls back to
//! other kernels.
#![allow(unsafe_code)]

mod choice;
mod descriptor;
mod graph;

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;

use zero_plan::Width;

use self::choice::{Chooser, FusedPlan};
use self::descriptor::{Descriptor, DnnHandle, Pointer, check};
use self::graph::{ALIGNMENT, FusedShape, FusedTensor};
use super::Cuda;
use super::context::DeviceContext;
use super::elementwise::check_len;
use super::error::CudaError;
use super::library::{Dnn, dnn};
use crate::device::{AttentionShape, Element, Strided};
use crate::view::{View, ViewMut};

/// The oldest version whose attention gradients are a single operation that gives the same bits each time, in linear
/// memory: 9.28.
const VERSION_MIN: usize = 92_800;

/// The most features of a head that the kernels take, in multiples of 8.
pub(super) const HEAD_DIM_MAX: usize = 128;

/// The library's workspace begins at a multiple of this.
const WORKSPACE_ALIGNMENT: usize = 256;

/// Kinds of `cudnnBackendDescriptorType_t`, and names of `cudnnBackendAttributeName_t`.
const PACK: c_int = 16;
const DEVICE: c_int = 38;
const PACK_IDS: c_int = 1000;
const PACK_POINTERS: c_int = 1001;
const PACK_WORKSPACE: c_int = 1003;
const DEVICE_HANDLE: c_int = 2701;

/// The library's part of a device, and the plans that it has made.
pub(super) struct Fused {
    context: Arc<DeviceContext>,
    /// None until attention is used.
    opened: Option<Opened>,
    plans: HashMap<FusedShape, FusedPlan>,
}

struct Opened {
    library: &'static Dnn,
    version: usize,
    handle: DnnHandle,
    device: Rc<Descriptor>,
}

/// The tensors of a call and their addresses.
type TensorAddresses<'a> = &'a [(FusedTensor, u64)];

impl Fused {
    pub fn none(context: &Arc<DeviceContext>) -> Self {
        Self { context: Arc::clone(context), opened: None, plans: HashMap::new() }
    }

    /// The version of the library, or 0 if it was not needed.
    pub fn version(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.version as u64)
    }

    /// A hash of all choices so far, independent of their order.
    pub fn fingerprint(&self) -> u64 {
        let hash = |(shape, plan): (&FusedShape, &FusedPlan)| {
            let text = format!("{shape} {:?} {:?}", shape.strides, plan.choice);
            u64::from_le_bytes(blake3::hash(text.as_bytes()).as_bytes()[..8].try_into().expect("eight bytes"))
        };
        self.plans.iter().map(hash).fold(0, u64::wrapping_add)
    }

    fn failed(&self, shape: &FusedShape, reason: String) -> CudaError {
        CudaError::Attention { shape: shape.to_string(), ordinal: self.context.ordinal, reason }
    }

    fn open(&mut self) -> Result<&Opened, CudaError> {
        if self.opened.is_none() {
            let library = dnn()?;
            // SAFETY: takes no arguments.
            let version = unsafe { (library.cudnnGetVersion)() };
            if version < VERSION_MIN {
                return Err(CudaError::AttentionVersion { found: version, expected: VERSION_MIN });
            }
            let failed = |reason| CudaError::Call { call: "cudnnCreate", ordinal: self.context.ordinal, reason };
            let mut handle = DnnHandle(null_mut());
            // SAFETY: room for a handle.
            check(library, "cudnnCreate", unsafe { (library.cudnnCreate)(&mut handle.0) }).map_err(failed)?;
            let device = Descriptor::new(library, DEVICE).and_then(|it| it.with(DEVICE_HANDLE, &[handle])?.finalized());
            let device = device.map_err(|reason| {
                // SAFETY: made above, and used nowhere after. There is nobody to tell a failure.
                let _ = unsafe { (library.cudnnDestroy)(handle.0) };
                failed(reason)
            })?;
            self.opened = Some(Opened { library, version, handle, device });
        }
        Ok(self.opened.as_ref().expect("opened above"))
    }

    /// Chooses a plan for this shape, unless there is one; an error if the plan needs more than `room` bytes.
    fn find(&mut self, shape: FusedShape, room: usize) -> Result<(), CudaError> {
        if !self.plans.contains_key(&shape) {
            let capability = self.context.capability;
            let opened = self.open()?;
            let chooser = Chooser { library: opened.library, device: &opened.device, capability };
            let plan = chooser.plan(&shape).map_err(|reason| self.failed(&shape, reason))?;
            self.plans.insert(shape, plan);
        }
        let bytes = self.plans[&shape].workspace_bytes;
        if bytes > room {
            let (shape, ordinal) = (shape.to_string(), self.context.ordinal);
            return Err(CudaError::AttentionRoom { shape, ordinal, bytes, room_bytes: room });
        }
        Ok(())
    }

    /// # Safety
    /// The tensors of the shape lie at the addresses, and `workspace` is as long as the plan that [`Self::find`] chose
    /// needs.
    unsafe fn execute(
        &self,
        shape: &FusedShape,
        at: TensorAddresses,
        workspace: u64,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<(), String> {
        let Opened { library, handle, .. } = self.opened.as_ref().expect("opened by `find`");
        let scale = 1.0 / (shape.shape.head_dim as f32).sqrt();
        let (hidden, window) = (f32::NEG_INFINITY, shape.window().unwrap_or(0) as f32);
        let numbers = [(FusedTensor::Scale, &scale), (FusedTensor::Hidden, &hidden), (FusedTensor::Window, &window)];
        let numbers = numbers.iter().filter(|(tensor, _)| *tensor != FusedTensor::Window || shape.window().is_some());
        let numbers = numbers.map(|&(tensor, number)| (tensor, Pointer(std::ptr::from_ref(number).cast())));
        let pointer = |address: u64| Pointer(std::ptr::without_provenance(address as usize));
        let (ids, pointers): (Vec<i64>, Vec<Pointer>) = at
            .iter()
            .map(|&(tensor, address)| (tensor, pointer(address)))
            .chain(numbers)
            .map(|(tensor, pointer)| (tensor as i64, pointer))
            .unzip();
        let pack = Descriptor::new(library, PACK)?
            .with(PACK_IDS, &ids)?
            .with(PACK_POINTERS, &pointers)?
            .with(PACK_WORKSPACE, &[pointer(workspace)])?
            .finalized()?;
        // SAFETY: a handle of this context, and a queue of it.
        check(library, "cudnnSetStream", unsafe { (library.cudnnSetStream)(handle.0, stream) })?;
        // SAFETY: by the caller's promise. The numbers on the host are read before this returns.
        unsafe { self.plans[shape].plan.execute(*handle, &pack) }
    }
}

impl Drop for Fused {
    fn drop(&mut self) {
        let Some(opened) = self.opened.take() else { return };
        if !self.context.settle() {
            std::mem::forget((opened.device, std::mem::take(&mut self.plans)));
            return;
        }
        self.plans.clear();
        drop(opened.device);
        // SAFETY: no queue works for it any more, and everything that was made with it has gone. There is nobody to
        // tell a failure.
        let _ = unsafe { (opened.library.cudnnDestroy)(opened.handle.0) };
    }
}

/// Runs it, once its plan is known, in the part of `room` from the first place where a workspace may begin.
fn run(cuda: &Cuda, shape: FusedShape, at: TensorAddresses, room: ViewMut<Cuda, u8>) {
    for &(tensor, address) in at {
        assert!(
            address.is_multiple_of(ALIGNMENT as u64),
            "{tensor:?} at {address:#x}, which is no multiple of {ALIGNMENT}"
        );
    }
    let start = room.address().addr() as u64;
    let workspace = start.next_multiple_of(WORKSPACE_ALIGNMENT as u64);
    let room_bytes = room.len().saturating_sub((workspace - start) as usize);
    cuda.attempt_always(|| cuda.fused.borrow_mut().find(shape, room_bytes));
    cuda.call(("fused attention", shape, at, workspace), || {
        let fused = cuda.fused.borrow();
        // SAFETY: tensors of the lengths that were checked, and a workspace as long as the plan needs.
        let executed = unsafe { fused.execute(&shape, at, workspace, cuda.stream()) };
        executed.map_err(|reason| fused.failed(&shape, reason))
    });
}

/// The addresses of the tensors of forward, which backward has too. `lse` is a pointer, as one of the two passes writes
/// it.
fn of_forward<E: Element>(qkv: [Strided<Cuda, E>; 3], out: View<Cuda, E>, lse: *const f32) -> [(FusedTensor, u64); 5] {
    let [q, k, v] = qkv.map(|rows| address(rows.view));
    let (out, lse) = (address(out), lse.addr() as u64);
    [
        (FusedTensor::Queries, q),
        (FusedTensor::Keys, k),
        (FusedTensor::Values, v),
        (FusedTensor::Output, out),
        (FusedTensor::Statistics, lse),
    ]
}

fn fused_shape<E: Element>(shape: AttentionShape, qkv: [Strided<Cuda, E>; 3], is_backward: bool) -> FusedShape {
    assert!(E::WIDTH == Width::BF16, "attention of cuDNN in {}, expected bf16", E::WIDTH.name());
    assert!(shape.before == 0, "attention of cuDNN after {} tokens more", shape.before);
    FusedShape { shape, strides: qkv.map(|rows| rows.stride), is_backward }
}

fn address<E: Element>(view: View<Cuda, E>) -> u64 {
    view.address().addr() as u64
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn attention<E: Element>(
    cuda: &Cuda,
    shape: AttentionShape,
    q: Strided<Cuda, E>,
    k: Strided<Cuda, E>,
    v: Strided<Cuda, E>,
    out: ViewMut<Cuda, E>,
    lse: ViewMut<Cuda, f32>,
    room: ViewMut<Cuda, u8>,
) {
    super::attention::check(shape, [q, k, v], out.len(), lse.len());
    let at = of_forward([q, k, v], out.as_view(), lse.address());
    run(cuda, fused_shape(shape, [q, k, v], false), &at, room);
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn attention_backward<E: Element>(
    cuda: &Cuda,
    shape: AttentionShape,
    q: Strided<Cuda, E>,
    k: Strided<Cuda, E>,
    v: Strided<Cuda, E>,
    out: View<Cuda, E>,
    lse: View<Cuda, f32>,
    dout: View<Cuda, E>,
    dqkv: ViewMut<Cuda, E>,
    room: ViewMut<Cuda, u8>,
) {
    super::attention::check(shape, [q, k, v], out.len(), lse.len());
    check_len("dout", dout.len(), out.len());
    check_len("dqkv", dqkv.len(), shape.tokens() * shape.qkv_width());
    let [dq, dk, dv] = shape.parts(dqkv.as_view());
    let [q_at, k_at, v_at, out_at, lse_at] = of_forward([q, k, v], out, lse.address());
    let at = [
        q_at,
        k_at,
        v_at,
        out_at,
        lse_at,
        (FusedTensor::QueryGradients, address(dq.view)),
        (FusedTensor::KeyGradients, address(dk.view)),
        (FusedTensor::ValueGradients, address(dv.view)),
        (FusedTensor::OutputGradients, address(dout)),
    ];
    run(cuda, fused_shape(shape, [q, k, v], true), &at, room);
}

#[cfg(test)]
mod tests;
