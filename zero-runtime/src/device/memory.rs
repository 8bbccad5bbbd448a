//! Memory: what a device gives out for an arena to lie in. Never looks at what is there.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytemuck::Pod;

use super::Device;
use crate::launch::{LaunchError, Segment};
use crate::view::{View, ViewMut};

/// Memory that a device has given out. It goes back to the device on drop.
///
/// # Safety
/// `len` bytes from `start` belong to this value for as long as it lives, hold zeros until something is written there, and
/// begin at a multiple of 4096.
#[expect(clippy::len_without_is_empty, reason = "no arena is empty")]
pub unsafe trait DeviceMemory: Send + Sync + 'static {
    /// The first byte, as the device counts: only the device can look there.
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

/// Gives a descriptor to all ranks, and gets that of each, in the order of ranks.
pub type Exchange<'a> = dyn FnMut(OwnedFd) -> Result<Vec<OwnedFd>, LaunchError> + 'a;

/// What ranks share where their devices have memory of their own: a part of each, one behind another.
pub struct SharedParts<'a, 'e> {
    /// Bytes of each rank's part.
    pub bytes: Vec<usize>,
    /// The rank that asks.
    pub own: usize,
    /// How ranks in processes of their own hand over what stands for their memory; none where all are threads of this one.
    pub exchange: Option<&'a mut Exchange<'e>>,
}

/// Elements in memory of a device that belong to nobody else: beside an arena, for what is measured or tried out.
pub struct Buffer<D: Device, T> {
    memory: D::Memory,
    len: usize,
    elements: PhantomData<T>,
}

impl<D: Device, T: Pod> Buffer<D, T> {
    /// `len` elements of `value`.
    ///
    /// # Errors
    /// If the device has not that much memory to give.
    pub fn filled(device: &D, len: usize, value: T) -> Result<Self, LaunchError> {
        let memory = device.allocate((len * size_of::<T>()).max(1))?;
        let mut buffer = Self { memory, len, elements: PhantomData };
        device.stage(buffer.view_mut(), |to| to.fill(value));
        Ok(buffer)
    }

    /// The elements, to read.
    pub fn view(&self) -> View<'_, D, T> {
        // SAFETY: so many elements of memory that is this value's, aligned as it starts on a page, and plain data; the caller that
        // could write them would need it mutably.
        unsafe { View::from_raw(self.memory.start().cast(), self.len) }
    }

    /// The elements, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, D, T> {
        // SAFETY: as for `view`, and the borrow is unique.
        unsafe { ViewMut::from_raw(self.memory.start().cast(), self.len) }
    }
}
