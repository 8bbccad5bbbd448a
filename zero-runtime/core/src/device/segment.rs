//! Segment: the memory that ranks share, mapped and owned. Running out of memory is an error here, not a signal later.
//! Never knows what lies in it.

use std::fs::File;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;

use super::available::check_available;
use super::error::DeviceError;

/// On x86-64, and elsewhere with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A page-aligned piece of memory, zero at start, shared by processes or by threads. Unmapped on drop.
#[derive(Debug)]
pub struct Segment {
    mapping: MmapRaw,
}

impl Segment {
    /// Memory shared by the threads of this process.
    ///
    /// # Errors
    /// Z0331 if the host does not have that much memory, Z0332 if the system refuses.
    pub fn private(bytes: usize) -> Result<Self, DeviceError> {
        check_available(bytes)?;
        let mapping = MmapOptions::new().len(bytes).map_anon().map_err(DeviceError::system("map memory"))?;
        // Only a hint: a kernel without huge pages refuses it, and the memory works without them. Miri does not know
        // the call.
        if cfg!(not(miri)) {
            let _ = mapping.advise(Advice::HugePage);
        }
        Ok(Segment { mapping: mapping.into() })
    }

    /// New memory that other processes can open with the descriptor. It can never shrink, and all of it is reserved.
    pub fn create(bytes: usize) -> Result<(Self, File), DeviceError> {
        check_available(bytes)?;
        let refused = DeviceError::system("reserve the ranks' shared memory");
        let memory = reserve(bytes).map_err(refused)?;
        Ok((Self::open(&memory, bytes)?, memory))
    }

    /// Maps memory that [`Segment::create`] made with `bytes` bytes, here or in another process.
    pub fn open(memory: &File, bytes: usize) -> Result<Self, DeviceError> {
        let refused = "map the ranks' shared memory";
        let length = memory.metadata().map_err(DeviceError::system(refused))?.len();
        // Otherwise a touch beyond the end would be a SIGBUS.
        assert!(length >= bytes as u64, "rank 0 sent {length} bytes of memory instead of the agreed {bytes}");
        let mapping = MmapOptions::new().len(bytes).map_raw(memory).map_err(DeviceError::system(refused))?;
        // Only a hint, as for private memory.
        let _ = mapping.advise(Advice::HugePage);
        Ok(Segment { mapping })
    }

    /// The first byte, page-aligned. Other ranks write here, too, so access needs atomics or an agreed order.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a plan's segment is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

fn reserve(bytes: usize) -> rustix::io::Result<File> {
    let memory = rustix::fs::memfd_create(c"zero", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let length = bytes.max(1) as u64;
    rustix::fs::ftruncate(&memory, length)?;
    let memory = File::from(memory);
    // Some systems use huge pages only for programs that ask, and only if asked before the pages are allocated. They
    // may refuse.
    let _ = ask_for_huge_pages(&memory, bytes);
    // Allocates all pages now. Later, a lack of pages would be a SIGBUS instead of an error to return.
    retry_on_intr(|| rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, length))?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Touches one page of each stretch as long as a huge page. Where that is allowed, the whole stretch becomes a huge
/// page. Each stretch has a mapping of its own for this, so that memory that is not yet used does not count as
/// resident.
fn ask_for_huge_pages(memory: &File, bytes: usize) -> std::io::Result<()> {
    for start in (0..bytes / HUGE_PAGE_BYTES).map(|page| page * HUGE_PAGE_BYTES) {
        let stretch = MmapOptions::new().offset(start as u64).len(HUGE_PAGE_BYTES).map_raw(memory)?;
        stretch.advise(Advice::HugePage)?;
        stretch.advise_range(Advice::PopulateWrite, 0, 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_memory_see_one_another() {
        let (first, memory) = Segment::create(10_000).unwrap();
        let second = Segment::open(&memory, 10_000).unwrap();
        assert_eq!((first.len(), second.len()), (10_000, 10_000));
        assert_eq!(first.ptr() as usize % 4096, 0);
        assert_eq!(read(&second), vec![0; 10_000]);
        write_last(&first, 7);
        assert_eq!(read(&second)[9_999], 7);
    }

    #[test]
    fn memory_cannot_be_resized() {
        let (_segment, memory) = Segment::create(10_000).unwrap();
        assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
        assert!(rustix::fs::ftruncate(&memory, 20_000).is_err());
    }

    #[test]
    fn private_memory_is_zero() {
        let segment = Segment::private(5000).unwrap();
        assert_eq!(read(&segment), vec![0; 5000]);
    }

    /// Asks for so much that mapping it would fail, even if the check did not refuse it.
    #[test]
    fn more_than_there_is_is_an_error() {
        let absurd = usize::MAX;
        for error in [Segment::private(absurd).unwrap_err(), Segment::create(absurd).unwrap_err()] {
            assert_eq!(error.code(), "Z0331", "{error}");
        }
    }

    #[expect(unsafe_code, reason = "a test reads what a mapping holds")]
    fn read(segment: &Segment) -> Vec<u8> {
        // SAFETY: the mapping holds `len` initialised bytes, and no one writes while this test reads.
        unsafe { std::slice::from_raw_parts(segment.ptr(), segment.len()) }.to_vec()
    }

    #[expect(unsafe_code, reason = "a test writes into a mapping")]
    fn write_last(segment: &Segment, value: u8) {
        // SAFETY: the last byte is within the mapping, and no reference to it exists.
        unsafe { segment.ptr().add(segment.len() - 1).write(value) }
    }
}
