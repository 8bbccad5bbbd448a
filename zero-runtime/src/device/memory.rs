//! Memory: what a device gives out for an arena to lie in. Never looks at what is there.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::launch::Segment;

/// Memory that a device has given out. It goes back to the device on drop.
///
/// # Safety
/// `len` bytes from `start` belong to this value for as long as it lives, hold zeros until something is written there, and
/// begin at a multiple of 4096.
#[expect(clippy::len_without_is_empty, reason = "no arena is empty")]
pub unsafe trait Memory: Send + Sync + 'static {
    /// The first byte, as the device counts: only the device can look there.
    fn start(&self) -> *mut u8;

    /// Length in bytes.
    fn len(&self) -> usize;
}

// SAFETY: a segment is a mapping of whole pages, zero at first, that ends when its last owner does.
unsafe impl Memory for Arc<Segment> {
    fn start(&self) -> *mut u8 {
        self.ptr()
    }

    fn len(&self) -> usize {
        Segment::len(self)
    }
}
