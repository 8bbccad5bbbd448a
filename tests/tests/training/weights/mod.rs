//! Published weights: every other layout imports the export of one layout and exports it again to the bit; and each broken folder
//! is refused with a message that names the fault.
#![allow(unsafe_code)]

mod broken;
mod checkpoints;
mod folder;
mod layouts;
mod published;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Records the largest single allocation of a thread.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // An ending thread no longer has this variable.
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// The largest single allocation of `call` on this thread.
fn largest_allocation(call: impl FnOnce()) -> usize {
    LARGEST.set(0);
    call();
    LARGEST.get()
}
