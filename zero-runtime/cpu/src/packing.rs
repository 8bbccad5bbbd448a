//! Packing: whether a thread is allocating memory to pack matrices in. Never allocates itself.

use std::cell::Cell;

thread_local! {
    static INSIDE_GEMM: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a call of the `gemm` crate, which allocates memory to pack matrices in, or makes such an
/// allocation itself, which it does once. So an allocator that counts can distinguish these allocations from
/// allocations of a step, of which there are none.
pub fn inside_gemm() -> bool {
    INSIDE_GEMM.get()
}

/// Runs `work`, which allocates memory to pack matrices in.
pub(super) fn making_room<R>(work: impl FnOnce() -> R) -> R {
    INSIDE_GEMM.set(true);
    let result = work();
    INSIDE_GEMM.set(false);
    result
}
