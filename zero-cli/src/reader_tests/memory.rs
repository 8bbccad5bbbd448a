//! Memory: what this thread takes at most while it reads a file. Never keeps a reader from memory, except from so much that the
//! system would end this process instead of the test.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// No request for more than this is granted, because a library might fill it with zeros.
const REFUSED_BYTES: usize = 6 << 30;

struct Counting;

thread_local! {
    /// Bytes that are held, and the most that were held, since the last [`peak`] began.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends has no counts any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: passes every call on to the system's allocator unchanged, or refuses it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        if layout.size() > REFUSED_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        if layout.size() > REFUSED_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of a call, and the most bytes that this thread has held in it beyond those that it held before.
pub fn peak<T>(call: impl FnOnce() -> T) -> (T, usize) {
    HELD.set((0, 0));
    let result = call();
    (result, HELD.get().1 as usize)
}

#[test]
fn memory_of_a_call_is_counted() {
    let (kept, bytes) = peak(|| {
        drop(vec![0u8; 5000]);
        vec![1u8; 300]
    });
    assert!((5000..6000).contains(&bytes), "{bytes} bytes");
    assert_eq!(peak(|| drop(kept)).1, 0);
}
