//! Scraps: keeps a thread's heap from growing by what `gemm` packs in. That asks for room in lines of 128 bytes at each product
//! and gives it back after. The allocator of glibc takes somewhat more, and cuts off what is over. A thread keeps up to seven such
//! scraps of a size for itself, which still lie beside the room when that is given back: without them it is too small for the next
//! request of the same size, which is given new room, and so on. So a thread is given all the scraps that it would keep.

use core::array;
use core::hint::black_box;

/// Scraps of one size that a thread keeps, and one more (`TCACHE_FILL_COUNT` in malloc.c of glibc 2.26 and later).
const KEPT: usize = 7 + 1;
/// Sizes of chunks differ by so much, and 8 bytes of each are the allocator's.
const STEP: usize = 16;
const OWN: usize = 8;
/// What is cut off is at least this, and at most as long as a line and as this.
const CHUNK_MIN: usize = 32;
const CHUNK_MAX: usize = 128 + CHUNK_MIN;

/// Lets the calling thread keep as many scraps as it ever does.
pub(super) fn keep_scraps() {
    for chunk in (CHUNK_MIN..=CHUNK_MAX).step_by(STEP) {
        let kept: [Vec<u8>; KEPT] = array::from_fn(|_| Vec::with_capacity(chunk - OWN));
        drop(black_box(kept));
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc, dealloc};

    use super::*;

    /// Room as `gemm` asks for it.
    const ROOM: usize = 3 << 19;

    /// Between the first and the last byte of all rooms of products that follow one another.
    #[allow(unsafe_code)]
    fn spread(keeps_scraps: bool) -> usize {
        let layout = Layout::from_size_align(ROOM, 128).expect("a layout");
        let mut addresses = Vec::with_capacity(64);
        let thread = std::thread::spawn(move || {
            // Beyond a first one, which is a mapping of its own, rooms of this size lie in the heap.
            if keeps_scraps {
                keep_scraps();
            }
            for _ in 0..addresses.capacity() {
                // SAFETY: of a size above 0, and given back as it was asked for.
                unsafe {
                    let room = alloc(layout);
                    assert!(!room.is_null());
                    addresses.push(black_box(room) as usize);
                    dealloc(room, layout);
                }
            }
            addresses
        });
        let addresses = thread.join().expect("addresses");
        let heap = &addresses[1..];
        heap.iter().max().expect("one") - heap.iter().min().expect("one") + ROOM
    }

    #[test]
    fn products_one_after_another_pack_in_the_same_room() {
        let (without, with) = (spread(false), spread(true));
        assert!(with < 2 * ROOM, "{with} bytes for rooms of {ROOM}, {without} where scraps are not kept");
    }
}
