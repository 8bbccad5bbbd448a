//! Memory of the naive device: addresses that only the device can use. Never computes.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::Arc;

use zero_core::device::DeviceMemory;
use zero_core::device::Segment;
use zero_core::view::{View, ViewMut};

use super::Naive;

/// A bit that is set in every address that the device hands out, and in no address of a process's memory, so that any other access
/// faults.
const HIDDEN: usize = 1 << 52;

/// Memory of the process, under other addresses.
pub struct Hidden(pub(super) Arc<Segment>);

// SAFETY: the device removes the mark before each access; the memory is a mapping of whole pages, zero at first.
unsafe impl DeviceMemory for Hidden {
    fn start(&self) -> *mut u8 {
        self.0.ptr().map_addr(|address| address | HIDDEN)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Bytes that an op of the device has read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Their address.
    pub start: usize,
    /// Where they end.
    pub end: usize,
    /// Whether they may have been written.
    pub writes: bool,
}

thread_local! {
    static TOUCHES: RefCell<Option<Vec<Touch>>> = const { RefCell::new(None) };
}

/// From now on, notes the bytes that ops of this thread touch.
pub fn note_touches() {
    TOUCHES.set(Some(Vec::new()));
}

/// Returns the bytes that were touched since then, and stops noting.
pub fn take_touches() -> Vec<Touch> {
    TOUCHES.take().unwrap_or_default()
}

fn note(address: usize, len_bytes: usize, writes: bool) {
    let touch = Touch { start: address, end: address + len_bytes, writes };
    TOUCHES.with_borrow_mut(|touches| {
        let Some(touches) = touches else { return };
        // Loops over elements look at the same few views again and again.
        if !touches.iter().rev().take(4).any(|noted| *noted == touch) {
            touches.push(touch);
        }
    });
}

fn found(address: usize) -> usize {
    assert!(address & HIDDEN != 0, "{address:#x} is not an address of this device");
    address & !HIDDEN
}

/// The elements of a view.
pub(super) fn look<'a, T>(view: View<'a, Naive, T>) -> &'a [T] {
    if view.is_empty() {
        return &[];
    }
    note(view.address().addr(), size_of::<T>() * view.len(), false);
    // SAFETY: the creator of the view promised that these elements are initialised and not written for `'a`, under the marked address.
    unsafe { core::slice::from_raw_parts(view.address().map_addr(found), view.len()) }
}

/// The elements of a view that may be changed.
pub(super) fn hold<'a, T>(view: ViewMut<'a, Naive, T>) -> &'a mut [T] {
    if view.is_empty() {
        return &mut [];
    }
    note(view.address().addr(), size_of::<T>() * view.len(), true);
    // SAFETY: as for `look`; and nothing else uses them for `'a`, because the view is consumed.
    unsafe { core::slice::from_raw_parts_mut(view.address().map_addr(found), view.len()) }
}
