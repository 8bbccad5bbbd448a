//! Storage: how a device gets memory, and how the host puts data there and reads it. Never computes.

use std::sync::Arc;

use bytemuck::Pod;

use super::{DeviceError, DeviceMemory, Segment, SharedParts};
use crate::view::{View, ViewMut};

/// Memory of a device, and the ways of the host's data into it and out of it.
pub trait Storage: Sized {
    /// Memory of this device.
    type Memory: DeviceMemory;

    /// `bytes` bytes of zeros, for this rank alone.
    ///
    /// # Errors
    /// If the device does not have that much.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError>;

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

    /// Lets the host `fill` a staging buffer of any content, as long as `to`. The ops that follow find in `to` what it
    /// wrote.
    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T]));

    /// Repeats a [`Storage::stage`] of the same pass, after which numbers were only added to `to`. The new numbers must
    /// be such that sums do not change them, such as NaN. Restaging adds no op to a pass that repeats.
    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        self.stage(to, fill);
    }

    /// `to` := `from`, on the host: waits until all ops so far are done.
    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]);

    /// Lends scratch memory to ops, each of which may use it while it runs. Its length is the plan's, and its content
    /// is arbitrary. A device that needs none ignores it.
    ///
    /// # Safety
    /// Until this device is dropped, or is lent other memory, nobody else reads or writes it.
    #[allow(unsafe_code)]
    unsafe fn lend(&self, workspace: ViewMut<Self, u8>) {
        let _ = workspace;
    }

    /// The memory that this rank takes on the device, and for it on the host, outside all arenas: the purpose and the
    /// measured bytes of each part.
    fn outside(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}
