//! Memory: device memory that an arena lies in. Never looks at its content.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytemuck::Pod;

use super::Device;
use crate::device::{DeviceError, Segment};
use crate::view::{View, ViewMut};

/// Memory that a device has allocated. It returns to the device on drop.
///
/// # Safety
/// `len` bytes from `start` belong to this value for as long as it lives, hold zeros until something is written there, and
/// begin at a multiple of 4096.
#[expect(clippy::len_without_is_empty, reason = "no arena is empty")]
pub unsafe trait DeviceMemory: Send + Sync + 'static {
    /// The first byte, as an address of the device: only the device can read it.
    fn start(&self) -> *mut u8;

    /// Length in bytes.
    fn len(&self) -> usize;
}

// SAFETY: a segment is a mapping of whole pages, zero at first, that ends when its last owner does.
unsafe impl DeviceMemory for Arc<Segment> {
    fn start(&self) -> *mut u8 {
        self.ptr()
    }

    fn len(&self) -> usize {
        Segment::len(self)
    }
}

/// Sends a descriptor to all ranks, and returns the descriptors of all ranks, in the order of ranks.
pub type Exchange<'a> = dyn FnMut(OwnedFd) -> Result<Vec<OwnedFd>, DeviceError> + 'a;

/// Memory that ranks share if their devices have memory of their own: one part for each rank, one after another.
pub struct SharedParts<'a, 'e> {
    /// Bytes of each rank's part.
    pub bytes: Vec<usize>,
    /// The rank that calls.
    pub own: usize,
    /// How ranks in separate processes exchange handles of their memory; none if all ranks are threads of this process.
    pub exchange: Option<&'a mut Exchange<'e>>,
}

/// Elements in device memory outside an arena, for measurements and tests. Nothing else uses them.
pub struct Buffer<D: Device, T> {
    memory: D::Memory,
    len: usize,
    elements: PhantomData<T>,
}

impl<D: Device, T: Pod> Buffer<D, T> {
    /// `len` elements of zeros.
    ///
    /// # Errors
    /// If the device does not have that much memory.
    pub fn zeros(device: &D, len: usize) -> Result<Self, DeviceError> {
        let memory = device.allocate((len * size_of::<T>()).max(1))?;
        Ok(Self { memory, len, elements: PhantomData })
    }

    /// `len` elements of zeros in the memory of the host.
    ///
    /// # Errors
    /// If the host does not have that much memory, or the device cannot reach it.
    pub fn zeros_on_host(device: &D, len: usize) -> Result<Self, DeviceError> {
        let memory = device.allocate_on_host((len * size_of::<T>()).max(1))?;
        Ok(Self { memory, len, elements: PhantomData })
    }

    /// `len` elements of `value`.
    ///
    /// # Errors
    /// If the device does not have that much memory.
    pub fn filled(device: &D, len: usize, value: T) -> Result<Self, DeviceError> {
        let mut buffer = Self::zeros(device, len)?;
        device.stage(buffer.view_mut(), |to| to.fill(value));
        Ok(buffer)
    }

    /// The elements, to read.
    pub fn view(&self) -> View<'_, D, T> {
        // SAFETY: `len` elements of memory that this value owns, aligned because it starts on a page, and plain data; a
        // caller that could write them would need this value mutably.
        unsafe { View::from_raw(self.memory.start().cast(), self.len) }
    }

    /// The elements, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, D, T> {
        // SAFETY: as for `view`, and the borrow is unique.
        unsafe { ViewMut::from_raw(self.memory.start().cast(), self.len) }
    }
}

/// Zeros in the memory of one device, as all devices of this process reach them, for measurements.
pub struct Reached<D: Device> {
    /// As each device reaches them.
    by: Vec<D::Memory>,
    len: usize,
}

impl<D: Device> Reached<D> {
    /// `len` bytes on the device with number `owner`.
    ///
    /// # Errors
    /// If it does not have that much memory, or another device cannot reach it.
    pub fn new(devices: &[D], owner: usize, len: usize) -> Result<Self, DeviceError> {
        // Threads of a process find the memory of a device by the segment that they share.
        let segment = Arc::new(Segment::private(1 << 12)?);
        let bytes: Vec<_> = (0..devices.len()).map(|number| if number == owner { len } else { 0 }).collect();
        let share = |own: usize| {
            let parts = SharedParts { bytes: bytes.clone(), own, exchange: None };
            devices[own].share(Arc::clone(&segment), parts)
        };
        // The first device that shares it allocates it.
        let first = share(owner)?;
        let mut by: Vec<D::Memory> = Vec::new();
        for number in (0..devices.len()).filter(|&number| number != owner) {
            by.push(share(number)?);
        }
        by.insert(owner, first);
        Ok(Self { by, len })
    }

    /// The bytes as this device reaches them.
    pub fn view(&self, device: usize) -> View<'_, D, u8> {
        // SAFETY: bytes of memory that this value owns, and never gives out to be written.
        unsafe { View::from_raw(self.by[device].start(), self.len) }
    }
}
