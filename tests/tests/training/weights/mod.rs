//! Published weights: what one layout of ranks exports, every other imports and exports again to the bit; and each folder
//! that is broken is refused in words that name what is wrong.
#![allow(unsafe_code)]

mod broken;
mod checkpoints;
mod folder;
mod layouts;
mod published;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Notes the largest piece of memory that a thread asks for at once.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands every call on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no such variable any more.
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

/// The most that `call` asks for at once on this thread.
fn largest_allocation(call: impl FnOnce()) -> usize {
    LARGEST.set(0);
    call();
    LARGEST.get()
}
