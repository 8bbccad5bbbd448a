//! Memory: the memory of arenas on a CUDA device: addresses, and whole pages of the device that they map to. Other
//! processes may map the pages too. Never knows its content.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys as cu;

use super::context::DeviceContext;
use super::error::CudaError;
use super::host_memory::HostMemory;
use zero_core::device::{DeviceError, Segment};
use zero_core::device::{DeviceMemory, Exchange, SharedParts};

const HANDLE: cu::CUmemAllocationHandleType =
    cu::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a CUDA device, or memory of its host from which and to which it can copy. It lives as long as its last owner.
pub struct CudaMemory(Backing);

/// What memory is made of.
enum Backing {
    Device(Arc<Mapped>),
    Host(HostMemory),
}

/// Pages of a device, and their addresses.
struct Mapped {
    context: Arc<DeviceContext>,
    /// 0 until addresses are reserved.
    start: cu::CUdeviceptr,
    bytes: usize,
    pages: Vec<Pages>,
    /// The host's part of the memory, by whose address the memory is found.
    host: Option<Registered>,
}

/// Pages of a device, and where they are mapped.
struct Pages {
    handle: cu::CUmemGenericAllocationHandle,
    offset: usize,
    bytes: usize,
    is_mapped: bool,
    /// Whether this rank allocated them, not another one.
    is_own: bool,
}

/// A segment of the host that the device can access.
struct Registered {
    context: Arc<DeviceContext>,
    segment: Arc<Segment>,
    start: cu::CUdeviceptr,
}

// SAFETY: `bytes` bytes, mapped and zeroed, from an address that is a multiple of the device's pages, which are at
// least as long as the host's; unmapped when the last owner is dropped. Host memory is made of whole pages of the host.
unsafe impl DeviceMemory for CudaMemory {
    fn start(&self) -> *mut u8 {
        match &self.0 {
            Backing::Device(mapped) => std::ptr::without_provenance_mut(mapped.start as usize),
            Backing::Host(memory) => memory.start(),
        }
    }

    fn len(&self) -> usize {
        match &self.0 {
            Backing::Device(mapped) => mapped.bytes,
            Backing::Host(memory) => memory.len(),
        }
    }
}

/// The memory made for each segment, as long as it has an owner.
static SHARED: Mutex<Vec<(usize, Weak<Mapped>)>> = Mutex::new(Vec::new());

impl CudaMemory {
    /// New memory of zeros: `bytes` bytes, rounded up to whole pages.
    pub(super) fn new(context: &Arc<DeviceContext>, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self(Backing::Device(Self::made(context, bytes.max(1), None)?)))
    }

    /// New memory of zeros on the host: exactly `bytes` bytes.
    pub(super) fn on_host(context: &Arc<DeviceContext>, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self(Backing::Host(HostMemory::new(context, bytes)?)))
    }

    fn made(context: &Arc<DeviceContext>, bytes: usize, host: Option<Registered>) -> Result<Arc<Mapped>, CudaError> {
        let mut mapped = Mapped::nothing(context, bytes, host)?;
        let bytes = mapped.bytes;
        mapped.take(0, bytes)?;
        mapped.map()?;
        mapped.clear(0, bytes)?;
        Ok(Arc::new(mapped))
    }

    /// The memory that ranks share on their devices. If ranks are threads, all of it is on the first device that asks;
    /// otherwise each rank contributes its part, and maps the parts of the others.
    pub(super) fn shared(
        context: &Arc<DeviceContext>,
        segment: Arc<Segment>,
        parts: SharedParts,
    ) -> Result<Self, DeviceError> {
        match parts.exchange {
            None => Ok(Self::beside(context, segment, parts.bytes.iter().sum())?),
            Some(exchange) => Self::exchanged(context, segment, parts.own, &parts.bytes, exchange),
        }
    }

    /// The device memory that belongs to a segment of the host: the same for all ranks of this process.
    fn beside(context: &Arc<DeviceContext>, segment: Arc<Segment>, bytes: usize) -> Result<Self, CudaError> {
        let key = segment.ptr().addr();
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, mapped)| mapped.strong_count() > 0);
        let known = shared.iter().find(|(name, _)| *name == key).and_then(|(_, mapped)| mapped.upgrade());
        if let Some(mapped) = known {
            context.enter()?;
            mapped.admit(context)?;
            return Ok(Self(Backing::Device(mapped)));
        }
        let made = Self::made(context, bytes, Some(Registered::new(context, segment)?))?;
        shared.push((key, Arc::downgrade(&made)));
        Ok(Self(Backing::Device(made)))
    }

    /// One range of addresses with the parts of all ranks, one after another.
    fn exchanged(
        context: &Arc<DeviceContext>,
        segment: Arc<Segment>,
        own: usize,
        parts: &[usize],
        exchange: &mut Exchange,
    ) -> Result<Self, DeviceError> {
        let mut mapped = Mapped::nothing(context, parts.iter().sum(), Some(Registered::new(context, segment)?))?;
        let start: usize = parts[..own].iter().sum();
        let given = if parts[own] > 0 {
            mapped.take(start, parts[own])?;
            mapped.export()?
        } else {
            // All ranks exchange descriptors, even a rank that has nothing to share.
            OwnedFd::from(File::open("/dev/null").map_err(DeviceError::system("open /dev/null"))?)
        };
        let (all, mut offset) = (exchange(given)?, 0);
        for (rank, (descriptor, &bytes)) in all.iter().zip(parts).enumerate() {
            if rank != own && bytes > 0 {
                mapped.import(descriptor.as_fd(), offset, bytes)?;
            }
            offset += bytes;
        }
        mapped.map()?;
        mapped.clear(start, parts[own])?;
        Ok(Self(Backing::Device(Arc::new(mapped))))
    }

    /// The address of the host's part, its length, and its address on the device, if there is one.
    pub(super) fn host(&self) -> Option<(usize, usize, u64)> {
        let Backing::Device(mapped) = &self.0 else { return None };
        let host = mapped.host.as_ref()?;
        Some((host.segment.ptr().addr(), host.segment.len(), host.start))
    }
}

impl Registered {
    fn new(context: &Arc<DeviceContext>, segment: Arc<Segment>) -> Result<Self, CudaError> {
        context.enter()?;
        let driver = &context.libraries.driver;
        let (host, mut start) = (segment.ptr().cast(), 0);
        // SAFETY: host memory for as long as this value holds it; then room for an address.
        unsafe {
            // Ranks that are threads share it, each with a context of its own.
            let for_all = cu::CU_MEMHOSTREGISTER_DEVICEMAP | cu::CU_MEMHOSTREGISTER_PORTABLE;
            let status = (driver.cuMemHostRegister_v2)(host, segment.len(), for_all);
            context.check("cuMemHostRegister", status)?;
            let registered = Self { context: Arc::clone(context), segment, start };
            let status = (driver.cuMemHostGetDevicePointer_v2)(&mut start, host, 0);
            context.check("cuMemHostGetDevicePointer", status)?;
            let mut registered = registered;
            registered.start = start;
            Ok(registered)
        }
    }
}
/// Pages on the device of a context, which may be passed to other processes.
fn properties(context: &DeviceContext) -> cu::CUmemAllocationProp {
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

fn location(context: &DeviceContext) -> cu::CUmemLocation {
    cu::CUmemLocation { type_: cu::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device }
}

impl Mapped {
    /// Without pages or addresses yet, for at least `bytes` bytes.
    fn nothing(context: &Arc<DeviceContext>, bytes: usize, host: Option<Registered>) -> Result<Self, CudaError> {
        context.enter()?;
        let mut granularity = 0;
        let smallest = cu::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let properties = properties(context);
        let get = context.libraries.driver.cuMemGetAllocationGranularity;
        // SAFETY: room for a number.
        context.check("cuMemGetAllocationGranularity", unsafe {
            get(&mut granularity, &raw const properties, smallest)
        })?;
        let bytes = bytes.next_multiple_of(granularity.max(1));
        Ok(Self { context: Arc::clone(context), start: 0, bytes, pages: Vec::new(), host })
    }

    /// Allocates pages of the device for a part of the addresses.
    fn take(&mut self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        let (context, properties, mut handle) = (&self.context, properties(&self.context), 0);
        // SAFETY: room for a handle.
        let status = unsafe { (context.libraries.driver.cuMemCreate)(&mut handle, bytes, &raw const properties, 0) };
        context.check_memory(bytes, "cuMemCreate", status)?;
        context.taken.arenas.fetch_add(bytes, Ordering::Relaxed);
        self.pages.push(Pages { handle, offset, bytes, is_mapped: false, is_own: true });
        Ok(())
    }

    /// A descriptor with which other processes can map the pages that were allocated first.
    fn export(&self) -> Result<OwnedFd, CudaError> {
        let (context, mut descriptor) = (&self.context, -1i32);
        let export = context.libraries.driver.cuMemExportToShareableHandle;
        // SAFETY: pages of this context, and room for a descriptor.
        let status = unsafe { export((&raw mut descriptor).cast(), self.pages[0].handle, HANDLE, 0) };
        context.check("cuMemExportToShareableHandle", status)?;
        // SAFETY: the driver has opened it only for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Uses the pages of another process for a part of the addresses, by the descriptor that the process exported.
    fn import(&mut self, from: BorrowedFd, offset: usize, bytes: usize) -> Result<(), CudaError> {
        let (context, mut handle) = (&self.context, 0);
        let descriptor = std::ptr::without_provenance_mut(from.as_raw_fd() as usize);
        // SAFETY: an open descriptor, as this kind of handle is passed, and room for a handle.
        let status =
            unsafe { (context.libraries.driver.cuMemImportFromShareableHandle)(&mut handle, descriptor, HANDLE) };
        context.check("cuMemImportFromShareableHandle", status)?;
        self.pages.push(Pages { handle, offset, bytes, is_mapped: false, is_own: false });
        Ok(())
    }

    /// Maps the pages at addresses, and lets this device access them.
    fn map(&mut self) -> Result<(), CudaError> {
        if self.bytes == 0 {
            return Ok(());
        }
        let driver = &self.context.libraries.driver;
        // SAFETY: room for an address; then addresses that were just reserved, for pages of these lengths.
        unsafe {
            let status = (driver.cuMemAddressReserve)(&mut self.start, self.bytes, 0, 0, 0);
            self.context.check_memory(self.bytes, "cuMemAddressReserve", status)?;
            for pages in &mut self.pages {
                let at = self.start + pages.offset as cu::CUdeviceptr;
                let status = (driver.cuMemMap)(at, pages.bytes, 0, pages.handle, 0);
                self.context.check_memory(pages.bytes, "cuMemMap", status)?;
                pages.is_mapped = true;
            }
        }
        self.admit(&self.context)
    }

    /// Lets the device of a context read and write here.
    fn admit(&self, context: &DeviceContext) -> Result<(), CudaError> {
        let access = cu::CUmemAccessDesc {
            location: location(context),
            flags: cu::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        self.pages.iter().try_for_each(|pages| {
            let at = self.start + pages.offset as cu::CUdeviceptr;
            // SAFETY: addresses that pages are mapped at, and one description.
            let status = unsafe { (context.libraries.driver.cuMemSetAccess)(at, pages.bytes, &raw const access, 1) };
            context.check("cuMemSetAccess", status)
        })
    }

    /// Fills a part of it with zeros, and waits until they are written.
    fn clear(&self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        let (context, at) = (&self.context, self.start + offset as cu::CUdeviceptr);
        // SAFETY: bytes of this value that nobody else has seen.
        let status = unsafe { (context.libraries.driver.cuMemsetD8Async)(at, 0, bytes, context.stream(0)) };
        context.check("cuMemsetD8Async", status)?;
        context.finish(0)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let driver = &self.context.libraries.driver;
        // Earlier ops may still use it.
        if !self.context.settle() {
            return;
        }
        // SAFETY: everything that was made, in reverse order; nobody has views any more, and ops that had views are done,
        // because the caller that drops a device waits for its queues first. A failure cannot be reported to anybody.
        unsafe {
            for pages in self.pages.iter().filter(|pages| pages.is_mapped) {
                let _ = (driver.cuMemUnmap)(self.start + pages.offset as cu::CUdeviceptr, pages.bytes);
            }
            if self.start != 0 {
                let _ = (driver.cuMemAddressFree)(self.start, self.bytes);
            }
            for pages in &self.pages {
                let _ = (driver.cuMemRelease)(pages.handle);
            }
            let own_bytes = self.pages.iter().filter(|pages| pages.is_own).map(|pages| pages.bytes).sum();
            self.context.taken.arenas.fetch_sub(own_bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: it was registered, and no op of the device reaches it any more, as above.
        let _ = unsafe { (self.context.libraries.driver.cuMemHostUnregister)(self.segment.ptr().cast()) };
    }
}
