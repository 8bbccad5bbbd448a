//! Packing: whether a thread is taking memory to pack matrices in. Never takes any itself.

use std::cell::Cell;

thread_local! {
    static INSIDE_GEMM: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is within a call of the `gemm` crate, which takes memory to pack matrices in, or takes memory
/// for the same purpose itself, which it does once. An allocator that counts can thus tell these allocations from those
/// of a step, of which there are none.
pub fn inside_gemm() -> bool {
    INSIDE_GEMM.get()
}

/// Runs `work`, which takes memory to pack matrices in.
pub(super) fn making_room<R>(work: impl FnOnce() -> R) -> R {
    INSIDE_GEMM.set(true);
    let result = work();
    INSIDE_GEMM.set(false);
    result
}
