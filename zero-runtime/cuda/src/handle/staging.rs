//! Staging: host memory through which numbers move to and from a device. It is allocated once, and the system never
//! moves it. Never keeps the numbers that went through.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys as cu;

use super::Cuda;
use crate::context::{DeviceContext, QUEUES};
use crate::error::CudaError;
use crate::host_memory::Pinned;

/// Bytes of each half: while the device copies from one half, the host fills the other.
const HALF_BYTES: usize = 4 << 20;

/// Every piece of a half begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 256;

/// Makes a queue copy bytes of pinned memory.
///
/// # Safety
/// There are `bytes` bytes at `to`, which no other queue uses, and nobody writes the bytes at `from` before they are
/// copied.
unsafe fn copy_in(
    context: &DeviceContext,
    to: cu::CUdeviceptr,
    from: *mut u8,
    bytes: usize,
    queue: usize,
) -> Result<(), CudaError> {
    // SAFETY: by the caller's promise.
    let status =
        unsafe { (context.libraries.driver.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, context.stream(queue)) };
    context.check("cuMemcpyHtoDAsync", status)
}

/// The staging of one handle of a device.
pub(crate) struct HandleStaging {
    context: Arc<DeviceContext>,
    /// Two halves.
    memory: Pinned,
    /// Marks the end of each queue's copies from each half.
    copied: [[cu::CUevent; QUEUES]; 2],
    /// Whether the queue copies from that half since the host began to fill it.
    is_used: [[bool; QUEUES]; 2],
    half: usize,
    /// Bytes of the current half that are in use.
    taken: usize,
}

impl HandleStaging {
    pub fn new(context: &Arc<DeviceContext>) -> Result<Self, CudaError> {
        let (memory, context) = (Pinned::new(context, 2 * HALF_BYTES)?, Arc::clone(context));
        let copied = [[null_mut(); QUEUES]; 2];
        let mut staging = Self { context, memory, copied, is_used: [[false; QUEUES]; 2], half: 0, taken: 0 };
        for event in staging.copied.iter_mut().flatten() {
            *event = staging.context.event()?;
        }
        Ok(staging)
    }

    /// Makes a queue copy bytes that [`HandleStaging::take`] has returned.
    ///
    /// # Safety
    /// There are as many bytes at `to`, which no other queue uses.
    unsafe fn copy(&mut self, to: cu::CUdeviceptr, from: *mut u8, bytes: usize, queue: usize) -> Result<(), CudaError> {
        // SAFETY: by the caller's promise, and the host's bytes are unchanged until `copied` says that they are copied.
        unsafe { copy_in(&self.context, to, from, bytes, queue) }?;
        let half = usize::from(from.addr() - self.memory.start().addr() >= HALF_BYTES);
        self.is_used[half][queue] = true;
        self.context.record(self.copied[half][queue], queue)
    }

    /// `bytes` bytes that the device no longer uses. They are not returned again before two halves of other bytes.
    fn take(&mut self, bytes: usize) -> Result<*mut u8, CudaError> {
        if self.taken + bytes > HALF_BYTES {
            (self.half, self.taken) = (1 - self.half, 0);
            // Only for queues that copy from it: other queues may wait for work that comes after this.
            for (&event, is_used) in self.copied[self.half].iter().zip(&mut self.is_used[self.half]) {
                if core::mem::take(is_used) {
                    self.context.await_event(event)?;
                }
            }
        }
        let at = self.half * HALF_BYTES + self.taken;
        self.taken += bytes.next_multiple_of(ALIGNMENT);
        // SAFETY: within the two halves, by the condition above.
        Ok(unsafe { self.memory.start().add(at) })
    }

    /// `to` := the elements at `from`, after all earlier work of a queue. Waits for the copy.
    ///
    /// # Safety
    /// There are as many initialised elements at `from`, and no other queue writes them meanwhile. When the queue is
    /// done, everything that this value was asked to send is done.
    pub unsafe fn receive<T: Pod>(
        &mut self,
        from: cu::CUdeviceptr,
        to: &mut [T],
        queue: usize,
    ) -> Result<(), CudaError> {
        let context = Arc::clone(&self.context);
        // Bytes on their way to the device must have left before their memory is used for the way back.
        context.finish(queue)?;
        for (i, piece) in bytemuck::cast_slice_mut::<T, u8>(to).chunks_mut(2 * HALF_BYTES).enumerate() {
            let from = from + (i * 2 * HALF_BYTES) as u64;
            // SAFETY: by the caller's promise; both halves are free.
            let status = unsafe {
                let copy = context.libraries.driver.cuMemcpyDtoHAsync_v2;
                copy(self.memory.start().cast(), from, piece.len(), context.stream(queue))
            };
            context.check("cuMemcpyDtoHAsync", status)?;
            context.finish(queue)?;
            // SAFETY: as many bytes, which the device has written and nobody else has.
            piece.copy_from_slice(unsafe { core::slice::from_raw_parts(self.memory.start(), piece.len()) });
        }
        Ok(())
    }
}

impl Cuda {
    /// Lets `fill` write `len` elements, and copies them to `to` in the entered queue. `fill` may itself send, once:
    /// the two then lie in one half or in both.
    ///
    /// # Safety
    /// There are `len` elements at `to`, which no other queue uses.
    pub(crate) unsafe fn send<T: Pod, F: FnOnce(&mut [T])>(
        &self,
        to: cu::CUdeviceptr,
        len: usize,
        fill: &mut Option<F>,
    ) -> Result<(), CudaError> {
        let bytes = len * size_of::<T>();
        let mut fill = |to: &mut [T]| fill.take().expect("what fills is asked once")(to);
        if let Some(from) = self.kept_place(to, bytes)? {
            // SAFETY: as many bytes, which nothing copies before this pass has ended, aligned for any number; any bits
            // are plain data.
            fill(unsafe { core::slice::from_raw_parts_mut(from.cast(), len) });
            if self.makes(("stage", to, bytes)) {
                // SAFETY: by the caller's promise; the graph copies the host's bytes from there in each pass.
                unsafe { copy_in(&self.context, to, from, bytes, self.queue()) }?;
            }
            return Ok(());
        }
        if bytes > HALF_BYTES {
            let mut all = vec![T::zeroed(); len];
            fill(&mut all);
            let mut staging = self.staging.borrow_mut();
            let staging = staging.as_mut().expect("a device without staging has failed");
            let pieces = bytemuck::cast_slice::<T, u8>(&all).chunks(HALF_BYTES);
            return pieces.enumerate().try_for_each(|(i, piece)| {
                let from = staging.take(piece.len())?;
                // SAFETY: as many bytes of a half that nobody else has; then, by the caller's promise, a piece of the
                // elements at `to`.
                unsafe {
                    core::slice::from_raw_parts_mut(from, piece.len()).copy_from_slice(piece);
                    staging.copy(to + (i * HALF_BYTES) as u64, from, piece.len(), self.queue())
                }
            });
        }
        let with = |act: &mut dyn FnMut(&mut HandleStaging) -> Result<*mut u8, CudaError>| {
            act(self.staging.borrow_mut().as_mut().expect("a device without staging has failed"))
        };
        let from = with(&mut |staging| staging.take(bytes))?;
        // SAFETY: as many bytes of the half, which the device no longer uses and nobody else has, aligned for any
        // number; any bits are plain data.
        fill(unsafe { core::slice::from_raw_parts_mut(from.cast(), len) });
        // SAFETY: by the caller's promise.
        with(&mut |staging| unsafe { staging.copy(to, from, bytes, self.queue()) }.map(|()| from)).map(drop)
    }
}

impl Drop for HandleStaging {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: the code that drops it has waited for its copies; events were made by `new`, and are not used
        // afterwards. A failure cannot be reported to anybody.
        unsafe {
            for &event in self.copied.iter().flatten().filter(|event| !event.is_null()) {
                self.context.drop_event(event);
            }
        }
    }
}
