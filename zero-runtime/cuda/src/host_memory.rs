//! Host memory: pinned memory of the host, from which and to which a device copies, and in which a rank may keep states.
//! Never knows its content.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::{DeviceContext, OUT_OF_MEMORY};
use super::error::CudaError;

/// Host memory that a device can copy from and to at any time.
pub(crate) struct Pinned {
    context: Arc<DeviceContext>,
    start: *mut u8,
    len: usize,
}

impl Pinned {
    /// `len` bytes of zeros.
    pub fn new(context: &Arc<DeviceContext>, len: usize) -> Result<Self, CudaError> {
        let mut start = null_mut::<c_void>();
        // SAFETY: room for an address.
        let status = unsafe { (context.libraries.driver.cuMemHostAlloc)(&mut start, len, 0) };
        if status == OUT_OF_MEMORY {
            let (ordinal, reason) = (context.ordinal, context.reason(status));
            return Err(CudaError::HostMemory { ordinal, bytes: len, reason });
        }
        context.check("cuMemHostAlloc", status)?;
        // SAFETY: as many bytes of host memory as were requested; now they are initialised.
        unsafe { start.cast::<u8>().write_bytes(0, len) };
        context.taken.pinned.fetch_add(len, Ordering::Relaxed);
        Ok(Self { context: Arc::clone(context), start: start.cast(), len })
    }

    /// The first byte, at the start of a page.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The context that it was made in.
    pub fn context(&self) -> &DeviceContext {
        &self.context
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: the code that drops it has waited for its copies; it was made by `new`, and is not used afterwards. A
        // failure cannot be reported to anybody.
        let _ = unsafe { (self.context.libraries.driver.cuMemFreeHost)(self.start.cast()) };
        self.context.taken.pinned.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Pinned memory of states. It has one address, for the host and for all devices: CUDA calls this unified addressing.
pub(super) struct HostMemory(ManuallyDrop<Pinned>);

// SAFETY: the host reads and writes it after it was made only in calls of the device's queues; the driver orders all
// accesses, and its release.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Exactly `bytes` bytes of zeros.
    pub fn new(context: &Arc<DeviceContext>, bytes: usize) -> Result<Self, CudaError> {
        context.enter()?;
        let pinned = Pinned::new(context, bytes)?;
        context.taken.states.fetch_add(bytes, Ordering::Relaxed);
        Ok(Self(ManuallyDrop::new(pinned)))
    }

    pub fn start(&self) -> *mut u8 {
        self.0.start()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // Earlier ops may still use it.
        if self.0.context().settle() {
            self.0.context().taken.states.fetch_sub(self.0.len(), Ordering::Relaxed);
            // SAFETY: it is dropped once, here, and no op of the device uses it any more.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
