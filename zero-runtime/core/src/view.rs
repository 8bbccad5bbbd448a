//! View: a borrowed stretch of a device's memory. Layers see nothing else of the arena. Never owns, never outlives the
//! call it was made for.
//!
//! The lifetime of a view is that of the op that runs, so a layer cannot keep parameters beyond their release:
//!
//! ```compile_fail
//! use std::cell::Cell;
//! use zero_core::view::View;
//!
//! struct Host;
//!
//! thread_local! { static KEPT: Cell<Option<View<'static, Host, f32>>> = const { Cell::new(None) } }
//! fn forward(params: View<'_, Host, f32>) {
//!     KEPT.set(Some(params)); // error: borrowed data escapes outside of function
//! }
//! ```
#![allow(unsafe_code)]

use core::marker::PhantomData;

use bytemuck::Pod;

use crate::checked::bytes;

/// A device whose memory is that of this process, so that its views are slices.
///
/// # Safety
/// An address of its memory is an address in this process.
pub unsafe trait HostMemory {}

/// Elements that may be read. Only the device `D` can look at them; everyone else can only cut the view.
pub struct View<'a, D, T> {
    start: *const T,
    len: usize,
    lifetime: PhantomData<(&'a [T], D)>,
}

/// Elements that may be written.
pub struct ViewMut<'a, D, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<(&'a mut [T], D)>,
}

// SAFETY: a view is a shared borrow of plain elements, as `&[T]` is.
unsafe impl<D, T: Sync> Send for View<'_, D, T> {}
// SAFETY: a mutable view is a unique borrow of plain elements, as `&mut [T]` is.
unsafe impl<D, T: Send> Send for ViewMut<'_, D, T> {}

impl<D, T> Clone for View<'_, D, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, T> Copy for View<'_, D, T> {}

impl<'a, D, T> View<'a, D, T> {
    /// A view of nothing.
    pub fn empty() -> Self {
        Self { start: core::ptr::NonNull::dangling().as_ptr(), len: 0, lifetime: PhantomData }
    }

    /// A view of `len` elements from `start`.
    ///
    /// # Safety
    /// For all of `'a` they are aligned, initialised elements in the memory of `D`, and nobody writes them.
    pub unsafe fn from_raw(start: *const T, len: usize) -> Self {
        Self { start, len, lifetime: PhantomData }
    }

    /// The device's address of the first element: only the device can access it.
    pub fn address(&self) -> *const T {
        self.start
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `at` elements, and the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "a view of {} elements cannot be cut at {at}", self.len);
        // SAFETY: both parts lie within this view, by the assertion.
        unsafe { (Self::from_raw(self.start, at), Self::from_raw(self.start.add(at), self.len - at)) }
    }

    /// `len` elements from `start`.
    pub fn part(self, start: usize, len: usize) -> Self {
        self.split_at(start).1.split_at(len).0
    }
}

impl<'a, D, T> ViewMut<'a, D, T> {
    /// A view of nothing.
    pub fn empty() -> Self {
        Self { start: core::ptr::NonNull::dangling().as_ptr(), len: 0, lifetime: PhantomData }
    }

    /// A mutable view of `len` elements from `start`.
    ///
    /// # Safety
    /// For all of `'a` they are aligned, initialised elements in the memory of `D`, and nobody else reads or writes them.
    pub unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Self { start, len, lifetime: PhantomData }
    }

    /// The device's address of the first element: only the device can access it.
    pub fn address(&self) -> *mut T {
        self.start
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, D, T> {
        ViewMut { start: self.start, len: self.len, lifetime: PhantomData }
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_, D, T> {
        View { start: self.start, len: self.len, lifetime: PhantomData }
    }

    /// The same elements, read-only from here on.
    pub fn into_view(self) -> View<'a, D, T> {
        View { start: self.start, len: self.len, lifetime: PhantomData }
    }

    /// The first `at` elements, and the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "a view of {} elements cannot be cut at {at}", self.len);
        // SAFETY: the parts lie within this view, by the assertion, do not overlap, and replace it.
        unsafe { (Self::from_raw(self.start, at), Self::from_raw(self.start.add(at), self.len - at)) }
    }

    /// `len` elements from `start`.
    pub fn part(self, start: usize, len: usize) -> Self {
        self.split_at(start).1.split_at(len).0
    }
}

impl<'a, D: HostMemory, T> View<'a, D, T> {
    /// The elements, if the device is this processor.
    pub fn as_slice(self) -> &'a [T] {
        // SAFETY: `from_raw` and `From` took a promise that these are initialised and unwritten for `'a`; `ids` keeps it,
        // since f32 and u32 share size and alignment and every bit pattern is valid.
        unsafe { core::slice::from_raw_parts(self.start, self.len()) }
    }
}

impl<'a, D: HostMemory, T> ViewMut<'a, D, T> {
    /// The elements, if the device is this processor.
    pub fn into_slice(self) -> &'a mut [T] {
        // SAFETY: `from_raw` and `From` took a promise that these are initialised and used by nobody else for `'a`, and
        // `self` is consumed.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len()) }
    }
}

impl<'a, D: HostMemory, T> From<&'a [T]> for View<'a, D, T> {
    fn from(slice: &'a [T]) -> Self {
        // SAFETY: a borrow of initialised elements of this processor's memory, which lives as long.
        unsafe { Self::from_raw(slice.as_ptr(), slice.len()) }
    }
}

impl<'a, D: HostMemory, T> From<&'a mut [T]> for ViewMut<'a, D, T> {
    fn from(slice: &'a mut [T]) -> Self {
        // SAFETY: a unique borrow of initialised elements of this processor's memory, which lives as long.
        unsafe { Self::from_raw(slice.as_mut_ptr(), slice.len()) }
    }
}

/// Checks that `len` elements of `T` from `address` are whole elements of `U`, and returns their number.
fn recounted<T, U>(address: usize, len: usize) -> usize {
    let bytes = len * size_of::<T>();
    assert!(
        bytes.is_multiple_of(size_of::<U>()) && (bytes == 0 || address.is_multiple_of(align_of::<U>())),
        "{bytes} bytes at {address:#x} are not whole elements of {} bytes",
        size_of::<U>()
    );
    bytes / size_of::<U>()
}

impl<'a, D, T: Pod> View<'a, D, T> {
    /// The same bytes as elements of another type.
    pub fn cast<U: Pod>(self) -> View<'a, D, U> {
        let len = recounted::<T, U>(self.start.addr(), self.len);
        // SAFETY: equally many bytes, aligned by the check above; every pattern of bits is a value of plain data.
        if len == 0 { View::empty() } else { unsafe { View::from_raw(self.start.cast(), len) } }
    }
}

impl<'a, D, T: Pod> ViewMut<'a, D, T> {
    /// The same bytes as elements of another type.
    pub fn cast<U: Pod>(self) -> ViewMut<'a, D, U> {
        let len = recounted::<T, U>(self.start.addr(), self.len);
        // SAFETY: as for `View::cast`; `self` is consumed.
        if len == 0 { ViewMut::empty() } else { unsafe { ViewMut::from_raw(self.start.cast(), len) } }
    }
}

impl<'a, D> View<'a, D, u8> {
    /// The first `len` elements, and the bytes after the [`bytes`] that they take.
    pub fn take<T: Pod>(self, len: usize) -> (View<'a, D, T>, Self) {
        let (first, rest) = self.split_at(bytes::<T>(len));
        (first.split_at(len * size_of::<T>()).0.cast(), rest)
    }
}

impl<'a, D> ViewMut<'a, D, u8> {
    /// The first `len` elements, and the bytes after the [`bytes`] that they take.
    pub fn take<T: Pod>(self, len: usize) -> (ViewMut<'a, D, T>, Self) {
        let (first, rest) = self.split_at(bytes::<T>(len));
        (first.split_at(len * size_of::<T>()).0.cast(), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Host;

    // SAFETY: the tests' memory is that of this process.
    unsafe impl HostMemory for Host {}

    #[test]
    fn pieces_lie_on_lines() {
        let mut memory = [0u64; 24];
        let all: ViewMut<Host, u8> = ViewMut::from(&mut memory[..]).cast();
        let (first, rest) = all.take::<u32>(3);
        let start = first.address().addr();
        let (second, rest) = rest.take::<f32>(17);
        assert_eq!((first.len(), second.len(), rest.len()), (3, 17, 0));
        assert_eq!(second.address().addr() - start, 64);
    }

    #[test]
    #[should_panic(expected = "are not whole elements of 4 bytes")]
    fn a_part_of_an_element_is_refused() {
        let _ = View::<Host, u8>::from(&[0u8; 6][..]).cast::<f32>();
    }
}
