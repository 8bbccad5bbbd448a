//! Host memory: memory of the host in which a rank keeps states, and from which and to which its device can copy. Never
//! knows its content.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::DeviceContext;
use super::error::CudaError;
use super::handle::staging::Pinned;

/// Pinned memory. It has one address, for the host and for all devices: CUDA calls this unified addressing.
pub(super) struct HostMemory(ManuallyDrop<Pinned>);

// SAFETY: the host never reads or writes it after it was made; the driver orders the device's accesses and its release.
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
