//! Memory: views of this processor's memory as slices, and slices as views. Never copies.
#![allow(unsafe_code)]

use super::Cpu;
use crate::view::{View, ViewMut};

impl<'a, T> View<'a, Cpu, T> {
    /// The elements, where the device is this processor.
    pub fn as_slice(self) -> &'a [T] {
        // SAFETY: `from_raw` and `From` took a promise that these are initialised and unwritten for `'a`; `ids` keeps it,
        // since f32 and u32 share size and alignment and every bit pattern is valid.
        unsafe { core::slice::from_raw_parts(self.start, self.len()) }
    }
}

impl<'a, T> ViewMut<'a, Cpu, T> {
    /// The elements, where the device is this processor.
    pub fn into_slice(self) -> &'a mut [T] {
        // SAFETY: `from_raw` and `From` took a promise that these are initialised and used by nobody else for `'a`, and
        // `self` is consumed.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len()) }
    }
}

impl<'a, T> From<&'a [T]> for View<'a, Cpu, T> {
    fn from(slice: &'a [T]) -> Self {
        // SAFETY: a borrow of initialised elements of this processor's memory, which lives as long.
        unsafe { Self::from_raw(slice.as_ptr(), slice.len()) }
    }
}

impl<'a, T> From<&'a mut [T]> for ViewMut<'a, Cpu, T> {
    fn from(slice: &'a mut [T]) -> Self {
        // SAFETY: a unique borrow of initialised elements of this processor's memory, which lives as long.
        unsafe { Self::from_raw(slice.as_mut_ptr(), slice.len()) }
    }
}
