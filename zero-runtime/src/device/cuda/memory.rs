//! Memory: what arenas lie in on a CUDA device: addresses, and whole pages of the device behind them, which other processes
//! may map too. Never knows what lies there.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys as cu;

use super::context::Context;
use super::error::CudaError;
use crate::device::Memory;
use crate::launch::Segment;

const HANDLE: cu::CUmemAllocationHandleType =
    cu::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a CUDA device. What shares it keeps it.
#[derive(Clone)]
pub struct CudaMemory(Arc<Mapped>);

/// Pages of a device, and the addresses that they are at.
struct Mapped {
    context: Arc<Context>,
    /// 0 until there are addresses.
    start: cu::CUdeviceptr,
    bytes: usize,
    pages: Option<cu::CUmemGenericAllocationHandle>,
    is_mapped: bool,
    /// The host's part of it, whose address names it.
    _segment: Option<Arc<Segment>>,
}

// SAFETY: so many bytes, mapped and zeroed, from an address that is a multiple of the device's pages, which are at least as
// long as the host's; unmapped on drop of the last owner.
unsafe impl Memory for CudaMemory {
    fn start(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(self.0.start as usize)
    }

    fn len(&self) -> usize {
        self.0.bytes
    }
}

/// What was made for a segment, as long as somebody has it.
static SHARED: Mutex<Vec<(usize, Weak<Mapped>)>> = Mutex::new(Vec::new());

impl CudaMemory {
    /// New memory of zeros: so many bytes, and what fills the last page.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        Self::made(context, bytes, None)
    }

    fn made(context: &Arc<Context>, bytes: usize, segment: Option<Arc<Segment>>) -> Result<Self, CudaError> {
        context.enter()?;
        let mut mapped = Mapped::nothing(context, bytes, segment)?;
        let properties = properties(context);
        let mut pages = 0;
        // SAFETY: room for a handle.
        let status =
            unsafe { (context.libraries.driver.cuMemCreate)(&mut pages, mapped.bytes, &raw const properties, 0) };
        context.check_memory(mapped.bytes, "cuMemCreate", status)?;
        mapped.pages = Some(pages);
        mapped.map()?;
        mapped.clear()?;
        Ok(Self(Arc::new(mapped)))
    }

    /// The memory of a device that goes with a segment of the host: the same for all ranks of this process.
    pub(super) fn beside(context: &Arc<Context>, segment: Arc<Segment>) -> Result<Self, CudaError> {
        let key = segment.ptr().addr();
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, mapped)| mapped.strong_count() > 0);
        let known = shared.iter().find(|(name, _)| *name == key).and_then(|(_, mapped)| mapped.upgrade());
        if let Some(mapped) = known {
            context.enter()?;
            mapped.admit(context)?;
            return Ok(Self(mapped));
        }
        let made = Self::made(context, segment.len(), Some(segment))?;
        shared.push((key, Arc::downgrade(&made.0)));
        Ok(made)
    }

    /// A descriptor by which another process can map the same memory.
    ///
    /// # Errors
    /// Z0436 if the driver refuses.
    pub fn export(&self) -> Result<OwnedFd, CudaError> {
        let context = &self.0.context;
        context.enter()?;
        let mut descriptor = -1i32;
        let pages = self.0.pages.expect("memory has pages");
        // SAFETY: pages of this context, and room for a descriptor.
        let status = unsafe {
            (context.libraries.driver.cuMemExportToShareableHandle)((&raw mut descriptor).cast(), pages, HANDLE, 0)
        };
        context.check("cuMemExportToShareableHandle", status)?;
        // SAFETY: the driver has opened it for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// The memory of another process, of `bytes` bytes there, by the descriptor that it exported.
    pub(super) fn import(context: &Arc<Context>, from: BorrowedFd, bytes: usize) -> Result<Self, CudaError> {
        context.enter()?;
        let mut mapped = Mapped::nothing(context, bytes, None)?;
        let mut pages = 0;
        let descriptor = std::ptr::without_provenance_mut(from.as_raw_fd() as usize);
        // SAFETY: an open descriptor, which this kind of handle is passed as, and room for a handle.
        let status =
            unsafe { (context.libraries.driver.cuMemImportFromShareableHandle)(&mut pages, descriptor, HANDLE) };
        context.check("cuMemImportFromShareableHandle", status)?;
        mapped.pages = Some(pages);
        mapped.map()?;
        Ok(Self(Arc::new(mapped)))
    }
}

/// Pages on the device of a context, which may be given to other processes.
fn properties(context: &Context) -> cu::CUmemAllocationProp {
    cu::CUmemAllocationProp {
        type_: cu::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: HANDLE,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: cu::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(context: &Context) -> cu::CUmemLocation {
    cu::CUmemLocation { type_: cu::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device }
}

impl Mapped {
    /// No pages at no addresses yet, for so many bytes at least.
    fn nothing(context: &Arc<Context>, bytes: usize, segment: Option<Arc<Segment>>) -> Result<Self, CudaError> {
        let mut granularity = 0;
        let smallest = cu::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let properties = properties(context);
        let get = context.libraries.driver.cuMemGetAllocationGranularity;
        // SAFETY: room for a number.
        context.check("cuMemGetAllocationGranularity", unsafe {
            get(&mut granularity, &raw const properties, smallest)
        })?;
        let bytes = bytes.max(1).next_multiple_of(granularity.max(1));
        let context = Arc::clone(context);
        Ok(Self { context, start: 0, bytes, pages: None, is_mapped: false, _segment: segment })
    }

    /// Gives the pages addresses, and this device access.
    fn map(&mut self) -> Result<(), CudaError> {
        let driver = &self.context.libraries.driver;
        let pages = self.pages.expect("pages are there before they are mapped");
        // SAFETY: room for an address; then addresses that were reserved just now, for pages of this length.
        unsafe {
            let status = (driver.cuMemAddressReserve)(&mut self.start, self.bytes, 0, 0, 0);
            self.context.check_memory(self.bytes, "cuMemAddressReserve", status)?;
            let status = (driver.cuMemMap)(self.start, self.bytes, 0, pages, 0);
            self.context.check_memory(self.bytes, "cuMemMap", status)?;
        }
        self.is_mapped = true;
        self.admit(&self.context)
    }

    /// Lets the device of a context read and write here.
    fn admit(&self, context: &Context) -> Result<(), CudaError> {
        let access = cu::CUmemAccessDesc {
            location: location(context),
            flags: cu::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: addresses that pages are mapped at, and one description.
        let status = unsafe { (context.libraries.driver.cuMemSetAccess)(self.start, self.bytes, &raw const access, 1) };
        context.check("cuMemSetAccess", status)
    }

    /// Fills it with zeros, and waits until they are there.
    fn clear(&self) -> Result<(), CudaError> {
        let context = &self.context;
        // SAFETY: bytes of this value that nobody else has seen.
        let status =
            unsafe { (context.libraries.driver.cuMemsetD8Async)(self.start, 0, self.bytes, context.stream(0)) };
        context.check("cuMemsetD8Async", status)?;
        context.finish(0)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let driver = &self.context.libraries.driver;
        // A device that has failed gives back all when its process ends.
        let _ = self.context.enter();
        // SAFETY: what was made, in the reverse order; nobody has views any more, and ops that had them are done, as whoever
        // drops a device waits for its queues first. There is nobody to tell a failure.
        unsafe {
            if self.is_mapped {
                let _ = (driver.cuMemUnmap)(self.start, self.bytes);
            }
            if self.start != 0 {
                let _ = (driver.cuMemAddressFree)(self.start, self.bytes);
            }
            if let Some(pages) = self.pages {
                let _ = (driver.cuMemRelease)(pages);
            }
        }
    }
}
