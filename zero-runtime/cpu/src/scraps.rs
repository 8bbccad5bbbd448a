//! Scraps: makes the products of a thread pack in the same memory, one after another. For each product, `gemm` allocates
//! memory that begins at a multiple of 128 bytes, and frees it afterwards. To align it, the allocator of glibc allocates
//! more, and frees both ends at once. A thread keeps up to seven freed pieces of each size, so these ends are not joined
//! with the aligned memory when that is freed. This memory alone is too small for the next such request, which gets new
//! memory. If a thread already keeps seven pieces of each such size, the ends are joined with the memory again.

use core::array;
use core::hint::black_box;

/// The number of pieces of one size that a thread keeps, plus one (`TCACHE_FILL_COUNT` in malloc.c of glibc 2.26 and
/// later).
const KEPT: usize = 7 + 1;
/// Sizes of pieces are multiples of `STEP`, and the allocator uses `OWN` bytes of each.
const STEP: usize = 16;
const OWN: usize = 8;
/// An end has at least this many bytes, and at most 128 more.
const END_MIN: usize = 32;
const END_MAX: usize = END_MIN + 128;

/// Fills the calling thread's store of freed pieces, for all sizes that an end may have.
pub(super) fn keep_scraps() {
    for bytes in (END_MIN..=END_MAX).step_by(STEP) {
        let kept: [Vec<u8>; KEPT] = array::from_fn(|_| Vec::with_capacity(bytes - OWN));
        drop(black_box(kept));
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc, dealloc};
    use std::num::NonZeroUsize;

    use super::*;
    use zero_core::device::Device;

    use crate::Cpu;

    /// Memory as `gemm` allocates it.
    const ROOM: usize = 3 << 19;

    /// The distance from the first to the last byte of the memory of consecutive products.
    #[allow(unsafe_code)]
    fn spread() -> usize {
        let layout = Layout::from_size_align(ROOM, 128).expect("a layout");
        let addresses: [usize; 64] = array::from_fn(|_| {
            // SAFETY: the size is above 0, and the memory is freed with the layout that it was allocated with.
            unsafe {
                let room = alloc(layout);
                assert!(!room.is_null());
                dealloc(black_box(room), layout);
                room as usize
            }
        });
        // The first is a mapping of its own, as large pieces are until one has been freed.
        let heap = &addresses[1..];
        heap.iter().max().expect("one") - heap.iter().min().expect("one") + ROOM
    }

    #[test]
    fn products_one_after_another_pack_in_the_same_room() {
        for threads in [1, 2] {
            let threads = NonZeroUsize::new(threads).expect("threads");
            let rank = move || Cpu::ONE_THREAD.on_threads(threads, "test", |_| spread()).expect("threads");
            // A thread that has not allocated before.
            let spread = std::thread::spawn(rank).join().expect("a rank");
            assert!(spread < 2 * ROOM, "{spread} bytes for rooms of {ROOM}, {threads} threads");
        }
    }
}
