//! Context: one device of the driver for one rank: its queues, their order, and its first error. Never knows what is
//! computed.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cudarc::driver::sys as cu;
use zero_core::device::HostCall;
use zero_plan::{Parcel, Stream};

use super::error::CudaError;
use super::library::{CallStatus, Libraries};

/// The oldest driver that has all functions called here: that of CUDA 13.0.
const DRIVER_MIN: i32 = 13_000;

/// The oldest devices with products of bf16: the Ampere generation.
const CAPABILITY_MIN: [i32; 2] = [8, 0];

/// Queues that a plan may put ops in.
pub(super) const STREAMS: usize = Stream::ALL.len();

/// All queues: those of plans, and the queues that send parcels to other ranks. A send waits until its receiver takes it,
/// and that rank may wait for this one. A send changes no memory here, so only the end of a pass waits for these queues.
pub(super) const QUEUES: usize = STREAMS + Parcel::ALL.len();

/// The queue of reads beside a run.
pub(super) const ASIDE: usize = QUEUES;

pub(super) const OUT_OF_MEMORY: CallStatus = 2;

/// How many sleeps a release of resources waits for the queues.
const SETTLE_SLEEPS: u32 = 10_000;
const SETTLE_SLEEP: Duration = Duration::from_millis(1);

/// The devices whose primary context is used by a rank of this process, or was left by one with work that never ends.
static PRIMARY: Mutex<BTreeSet<cu::CUdevice>> = Mutex::new(BTreeSet::new());

/// Figures about a device's memory that the driver does not report.
#[derive(Default)]
pub(super) struct KnownMemory {
    /// Memory in use before the first request: the context, and other programs.
    pub before: AtomicUsize,
    /// Memory of arenas.
    pub arenas: AtomicUsize,
    /// Host memory that the device can access at any time, without the segments that ranks share.
    pub pinned: AtomicUsize,
    /// The part of it in which ranks keep states.
    pub states: AtomicUsize,
}

/// A device, its queues and its failure.
pub(super) struct DeviceContext {
    pub libraries: &'static Libraries,
    pub ordinal: usize,
    pub device: cu::CUdevice,
    handle: cu::CUcontext,
    is_primary: bool,
    /// Major and minor version.
    pub capability: [i32; 2],
    pub multiprocessors: usize,
    streams: [cu::CUstream; QUEUES + 1],
    /// For each queue of a plan, the event that marks the end of its work in a pass.
    joins: [cu::CUevent; STREAMS],
    failure: OnceLock<CudaError>,
    pub taken: KnownMemory,
    /// Whether a queue waits for an event that never comes.
    is_abandoned: AtomicBool,
    /// What queues make the host do.
    calls: OnceLock<Vec<HostCall>>,
}

// SAFETY: any thread may use the driver's handles, and the driver orders calls itself.
unsafe impl Send for DeviceContext {}
// SAFETY: as above; only the failure changes here, and it orders its own accesses.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let mut context = Self::unopened(ordinal)?;
        context.find()?;
        context.begin()?;
        context.begin_to_count();
        Ok(context)
    }

    /// The number of devices that the driver lists.
    pub fn shown() -> Result<usize, CudaError> {
        Self::unopened(0)?.count()
    }

    fn unopened(ordinal: usize) -> Result<Self, CudaError> {
        Ok(Self {
            libraries: Libraries::get()?,
            ordinal,
            device: 0,
            handle: null_mut(),
            is_primary: false,
            capability: [0; 2],
            multiprocessors: 0,
            streams: [null_mut(); QUEUES + 1],
            joins: [null_mut(); STREAMS],
            failure: OnceLock::new(),
            taken: KnownMemory::default(),
            is_abandoned: AtomicBool::new(false),
            calls: OnceLock::new(),
        })
    }

    /// Finds the device, and checks that it is usable.
    fn find(&mut self) -> Result<(), CudaError> {
        let count = self.count()?;
        if self.ordinal >= count {
            return Err(CudaError::NoDevice { ordinal: self.ordinal, count });
        }
        // SAFETY: room for a handle, and the device exists.
        let status = unsafe { (self.libraries.driver.cuDeviceGet)(&mut self.device, self.ordinal as c_int) };
        self.check("cuDeviceGet", status)?;
        use cu::CUdevice_attribute_enum as of;
        let major = self.attribute(of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        self.capability = [major, self.attribute(of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?];
        if self.capability < CAPABILITY_MIN {
            let (name, found) = (self.name()?, self.capability);
            return Err(CudaError::DeviceOld { ordinal: self.ordinal, name, found, expected: CAPABILITY_MIN });
        }
        let multiprocessors = self.attribute(of::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        self.multiprocessors = usize::try_from(multiprocessors).unwrap_or(1).max(1);
        Ok(())
    }

    /// The number of devices that the driver lists, if the driver is new enough.
    fn count(&self) -> Result<usize, CudaError> {
        let driver = &self.libraries.driver;
        let (mut version, mut count) = (0, 0);
        // SAFETY: each call has room for what it writes.
        unsafe {
            let begun = (driver.cuInit)(0);
            // The driver says "no device" here if there is none at all.
            if begun == cu::cudaError_enum::CUDA_ERROR_NO_DEVICE as CallStatus {
                return Err(CudaError::NoDevice { ordinal: self.ordinal, count: 0 });
            }
            // An old driver reports its version as well.
            self.check("cuDriverGetVersion", (driver.cuDriverGetVersion)(&mut version))?;
            if version < DRIVER_MIN {
                return Err(CudaError::DriverOld { found: version, expected: DRIVER_MIN });
            }
            self.check("cuInit", begun)?;
            self.check("cuDeviceGetCount", (driver.cuDeviceGetCount)(&mut count))?;
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Takes the device's primary context, as libraries expect, or makes another context if a rank that is a thread of
    /// this process has it. A kernel is loaded only after all work of its context has ended, and in a context of two
    /// ranks that work may wait for the rank that loads.
    fn take_context(&mut self) -> Result<(), CudaError> {
        let (driver, device) = (&self.libraries.driver, self.device);
        let mut primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
        if primary.contains(&device) {
            // SAFETY: room for a handle, and no parameters.
            let status = unsafe { (driver.cuCtxCreate_v4)(&mut self.handle, null_mut(), 0, device) };
            return self.check_memory(0, "cuCtxCreate", status);
        }
        // SAFETY: room for a handle.
        let status = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut self.handle, device) };
        self.check_memory(0, "cuDevicePrimaryCtxRetain", status)?;
        self.is_primary = primary.insert(device);
        Ok(())
    }

    /// Makes the queues of a context. After an error, everything that was made is dropped with this value.
    fn begin(&mut self) -> Result<(), CudaError> {
        self.take_context()?;
        let driver = &self.libraries.driver;
        // SAFETY: each call has room for what it writes.
        unsafe {
            self.enter()?;
            let apart = cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            for i in 0..self.streams.len() {
                let mut stream = null_mut();
                let status = (driver.cuStreamCreateWithPriority)(&mut stream, apart, 0);
                self.check_memory(0, "cuStreamCreateWithPriority", status)?;
                self.streams[i] = stream;
            }
            for i in 0..self.joins.len() {
                self.joins[i] = self.event()?;
            }
        }
        Ok(())
    }

    /// The device's name.
    pub fn name(&self) -> Result<String, CudaError> {
        let mut name = [0 as c_char; 128];
        // SAFETY: as much room as the length says.
        let status =
            unsafe { (self.libraries.driver.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int - 1, self.device) };
        self.check("cuDeviceGetName", status)?;
        // SAFETY: the last byte is 0, because only those before it were written.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn attribute(&self, of: cu::CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: room for one number.
        let status = unsafe { (self.libraries.driver.cuDeviceGetAttribute)(&mut value, of, self.device) };
        self.check("cuDeviceGetAttribute", status).map(|()| value)
    }

    /// Makes this thread's calls go to this device.
    pub fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: a context that is held until this value is dropped.
        self.check("cuCtxSetCurrent", unsafe { (self.libraries.driver.cuCtxSetCurrent)(self.handle) })
    }

    /// The driver's handle of this context.
    pub fn handle(&self) -> cu::CUcontext {
        self.handle
    }

    /// The queue with this number.
    pub fn stream(&self, queue: usize) -> cu::CUstream {
        self.streams[queue]
    }

    /// A new event, to be dropped by [`DeviceContext::drop_event`].
    pub fn event(&self) -> Result<cu::CUevent, CudaError> {
        let mut event = null_mut();
        let untimed = cu::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: room for one event.
        let status = unsafe { (self.libraries.driver.cuEventCreate)(&mut event, untimed) };
        self.check_memory(0, "cuEventCreate", status).map(|()| event)
    }

    /// # Safety
    /// The event is of this context, and is not used afterwards.
    pub unsafe fn drop_event(&self, event: cu::CUevent) {
        // SAFETY: by the caller's promise. A failure cannot be reported to anybody.
        let _ = unsafe { (self.libraries.driver.cuEventDestroy_v2)(event) };
    }

    /// Records an event after all earlier work of a queue.
    pub fn record(&self, event: cu::CUevent, queue: usize) -> Result<(), CudaError> {
        // SAFETY: an event and a queue of this context.
        self.check("cuEventRecord", unsafe { (self.libraries.driver.cuEventRecord)(event, self.streams[queue]) })
    }

    /// Makes a queue wait, from here on, for the last record of an event.
    pub fn wait(&self, event: cu::CUevent, queue: usize) -> Result<(), CudaError> {
        // SAFETY: as for `record`.
        let status = unsafe { (self.libraries.driver.cuStreamWaitEvent)(self.streams[queue], event, 0) };
        self.check("cuStreamWaitEvent", status)
    }

    /// Keeps what queues make the host do, once.
    pub fn keep_calls(&self, calls: Vec<HostCall>) {
        assert!(self.calls.set(calls).is_ok(), "a device whose calls are kept already");
    }

    /// Makes the host do one of its calls after all earlier work of a queue.
    pub fn call_host(&self, call: usize, queue: usize) -> Result<(), CudaError> {
        /// Makes a call. A panic ends the process, because the driver could not go on after it.
        extern "C" fn make(call: *mut c_void) {
            // SAFETY: the address of a call of a context, which keeps it until its queues are empty.
            let call = unsafe { &*call.cast_const().cast::<HostCall>() };
            call();
        }
        let call: *const HostCall =
            &raw const self.calls.get().expect("calls that are kept before the first step")[call];
        let launch = self.libraries.driver.cuLaunchHostFunc;
        // SAFETY: a queue of this context, and a function of the type that the driver calls with this address.
        let status = unsafe { launch(self.streams[queue], Some(make), call.cast_mut().cast()) };
        self.check("cuLaunchHostFunc", status)
    }

    /// Waits on the host for the last record of an event.
    pub fn await_event(&self, event: cu::CUevent) -> Result<(), CudaError> {
        // SAFETY: an event of this context.
        self.check("cuEventSynchronize", unsafe { (self.libraries.driver.cuEventSynchronize)(event) })
    }

    /// Makes a queue wait, from here on, for all work so far in the queues of a plan.
    pub fn join_all(&self, queue: usize) -> Result<(), CudaError> {
        for other in (0..STREAMS).filter(|&other| other != queue) {
            self.record(self.joins[other], other)?;
            self.wait(self.joins[other], queue)?;
        }
        Ok(())
    }

    /// Waits until nothing uses the resources that are about to be dropped. False if a queue waits for an event that never
    /// comes, such as for a rank that has ended: then nothing of this device may be dropped before the process ends.
    pub fn settle(&self) -> bool {
        for _ in 0..SETTLE_SLEEPS {
            if self.is_abandoned.load(Ordering::Relaxed) || self.enter().is_err() {
                return false;
            }
            if self.is_idle(QUEUES) {
                return true;
            }
            std::thread::sleep(SETTLE_SLEEP);
        }
        self.is_abandoned.store(true, Ordering::Relaxed);
        false
    }

    /// Waits on the host until a queue has done all its work.
    pub fn finish(&self, queue: usize) -> Result<(), CudaError> {
        // SAFETY: a queue of this context.
        let status = unsafe { (self.libraries.driver.cuStreamSynchronize)(self.streams[queue]) };
        self.check("cuStreamSynchronize", status)
    }

    /// Whether the first `queues` queues have done all their work. Failed work counts as done.
    pub fn is_idle(&self, queues: usize) -> bool {
        const NOT_READY: CallStatus = cu::cudaError_enum::CUDA_ERROR_NOT_READY as CallStatus;
        // SAFETY: queues of this context.
        let state = |queue: usize| unsafe { (self.libraries.driver.cuStreamQuery)(self.streams[queue]) };
        (0..queues).all(|queue| match state(queue) {
            NOT_READY => false,
            status => {
                self.check("cuStreamQuery", status).unwrap_or_else(|error| self.fail(error));
                true
            }
        })
    }

    /// Delays all later work of a queue until the word at an address has reached `target`. Counts wrap around.
    pub fn await_value(&self, address: cu::CUdeviceptr, target: u32, queue: usize) -> Result<(), CudaError> {
        let reached = cu::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: a word that the device can access, in a queue of this context.
        let status =
            unsafe { (self.libraries.driver.cuStreamWaitValue32_v2)(self.streams[queue], address, target, reached) };
        self.check("cuStreamWaitValue32", status)
    }

    /// Writes the word at an address after all work of a queue so far, so that an observer of the word also sees the
    /// results of that work.
    pub fn write_value(&self, address: cu::CUdeviceptr, value: u32, queue: usize) -> Result<(), CudaError> {
        // SAFETY: as above; only the rank of this context writes it.
        let status = unsafe { (self.libraries.driver.cuStreamWriteValue32_v2)(self.streams[queue], address, value, 0) };
        self.check("cuStreamWriteValue32", status)
    }

    /// The version of the library for matrix products.
    pub fn blas_version(&self) -> u64 {
        // SAFETY: takes no arguments.
        unsafe { (self.libraries.blas.cublasLtGetVersion)() as u64 }
    }

    /// The driver's text for a status.
    pub fn reason(&self, status: CallStatus) -> String {
        let driver = &self.libraries.driver;
        let text = |get: unsafe extern "C" fn(CallStatus, *mut *const c_char) -> CallStatus| {
            let mut text = std::ptr::null();
            // SAFETY: room for a pointer to a text that lives as long as the library, or null.
            unsafe {
                let known = get(status, &mut text) == 0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (text(driver.cuGetErrorName), text(driver.cuGetErrorString)) {
            (Some(name), Some(meaning)) => format!("{name}, {meaning}"),
            _ => format!("status {status}, which this driver does not describe"),
        }
    }

    /// Returns an error unless the status is 0.
    pub fn check(&self, call: &'static str, status: CallStatus) -> Result<(), CudaError> {
        let ordinal = self.ordinal;
        match status {
            0 => Ok(()),
            _ if is_late(status) => Err(CudaError::Stopped { ordinal, reason: self.reason(status) }),
            _ => Err(CudaError::Call { call, ordinal, reason: self.reason(status) }),
        }
    }

    /// [`DeviceContext::check`] of a call that allocates `bytes` bytes of the device; 0 if their number is unknown.
    pub fn check_memory(&self, bytes: usize, call: &'static str, status: CallStatus) -> Result<(), CudaError> {
        if status != OUT_OF_MEMORY || bytes == 0 {
            return self.check(call, status);
        }
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: room for two numbers. If the driver does not know them either, they stay 0.
        let _ = unsafe { (self.libraries.driver.cuMemGetInfo_v2)(&mut free_bytes, &mut total_bytes) };
        Err(CudaError::OutOfMemory { ordinal: self.ordinal, bytes, free_bytes, total_bytes })
    }

    /// Keeps an error, if it is the first.
    pub fn fail(&self, error: CudaError) {
        let _ = self.failure.set(error);
    }

    /// The first error that was kept.
    pub fn failure(&self) -> Option<&CudaError> {
        self.failure.get()
    }
}

/// Whether a status is the error of an op that began earlier: after it, the device refuses all calls.
pub(super) fn is_late(status: CallStatus) -> bool {
    // An illegal address, a timeout, an assertion, faults of the hardware and of a kernel, and unknown errors.
    matches!(status, 700 | 702 | 710 | 714..=719 | 999)
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        let driver = &self.libraries.driver;
        if self.handle.is_null() || !self.settle() {
            // A queue may still make one of its calls.
            std::mem::forget(self.calls.take());
            return;
        }
        // SAFETY: all are of this context, were made by `begin`, and are not used afterwards. A failure cannot be reported to anybody.
        unsafe {
            for &stream in self.streams.iter().filter(|stream| !stream.is_null()) {
                let _ = (driver.cuStreamSynchronize)(stream);
                let _ = (driver.cuStreamDestroy_v2)(stream);
            }
            for &event in self.joins.iter().filter(|event| !event.is_null()) {
                self.drop_event(event);
            }
            if self.is_primary {
                let _ = (driver.cuDevicePrimaryCtxRelease_v2)(self.device);
                PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.device);
            } else {
                let _ = (driver.cuCtxDestroy_v2)(self.handle);
            }
        }
    }
}
