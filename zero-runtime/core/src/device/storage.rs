//! Storage: how a device allocates memory, and how the host writes data to it and reads data from it. Never computes.

use std::sync::Arc;

use bytemuck::Pod;

use super::{DeviceError, DeviceMemory, Segment, SharedParts};
use crate::view::{View, ViewMut};

/// Memory of a device, and how the host's data gets into it and out of it.
pub trait Storage: Sized {
    /// Memory of this device.
    type Memory: DeviceMemory;

    /// `bytes` bytes of zeros, for this rank alone.
    ///
    /// # Errors
    /// If the device does not have that much.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError>;

    /// Exactly `bytes` bytes of zeros in the memory of the host, for this rank alone, from which and to which this device
    /// can copy. A device that works in the memory of the host has no other.
    ///
    /// # Errors
    /// If the host does not have that much, or the device cannot reach it.
    fn allocate_on_host(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        self.allocate(bytes)
    }

    /// The memory that ranks share, as this device reaches it: on a device that works in the host's memory, the segment
    /// itself; otherwise the part on each rank's device. [`Storage::reach`] gives addresses within the segment.
    ///
    /// # Errors
    /// If the device, or the device of another rank, cannot reach it.
    fn share(&self, segment: Arc<Segment>, parts: SharedParts) -> Result<Self::Memory, DeviceError>;

    /// The device's address of an address in the memory that ranks share on the host: see [`Storage::share`].
    fn reach<T>(&self, host: *mut T) -> *mut T {
        host
    }

    /// Lets the host `fill` a staging buffer as long as `to`, whose content is arbitrary at first. Later ops find the
    /// written values in `to`.
    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T]));

    /// Repeats a [`Storage::stage`] of the same pass, after which numbers were only added to `to`. Additions must leave
    /// the new numbers unchanged, as they do NaN. Restaging adds no op to a pass that repeats.
    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        self.stage(to, fill);
    }

    /// `to` := `from`, on the host: waits until all ops so far are done.
    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]);

    /// Lends scratch memory to ops, each of which may use it while it runs. The plan sets its length, and its content
    /// is arbitrary. A device that needs no scratch memory ignores it.
    ///
    /// # Safety
    /// Until this device is dropped, or is lent other memory, nobody else reads or writes it.
    #[allow(unsafe_code)]
    unsafe fn lend(&self, workspace: ViewMut<Self, u8>) {
        let _ = workspace;
    }

    /// The memory outside all arenas that this rank uses on the device, and on the host for the device: the purpose and
    /// the measured bytes of each part.
    fn outside(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}
