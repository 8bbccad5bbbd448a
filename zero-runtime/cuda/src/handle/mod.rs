//! Handle: a rank's access to its device: the queue that its ops go to, and the resources that they need there. Never
//! shared by threads.
#![allow(unsafe_code)]

pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod nccl;
pub(crate) mod shape;
pub(crate) mod staging;
pub(crate) mod ways;
pub(crate) mod workspace;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use cudarc::driver::sys as cu;

use self::graph::Graphs;
use self::launch::Kernel;
use self::module::Modules;
use self::nccl::NcclGroups;
use self::staging::HandleStaging;
use self::ways::Products;
use self::workspace::QueueWorkspace;
use crate::context::{ASIDE, DeviceContext};
use crate::error::CudaError;

/// One CUDA device, for one rank.
///
/// The first error is kept, see [`zero_core::device::Device::failure`]; after it, ops do nothing.
pub struct Cuda {
    // `context` is last, so that it is dropped last: everything above it belongs to it.
    pub(crate) modules: RefCell<Modules>,
    pub(crate) products: RefCell<Products>,
    /// `None` on a handle whose staging could not be made: the handle has failed.
    pub(crate) staging: RefCell<Option<HandleStaging>>,
    pub(crate) workspace: QueueWorkspace,
    pub(crate) graphs: RefCell<Graphs>,
    /// The groups of ranks that this rank exchanges bytes with.
    pub(crate) groups: RefCell<NcclGroups>,
    pub(crate) events: RefCell<Vec<cu::CUevent>>,
    queue: Cell<usize>,
    /// The kernels that the current rehearsal has asked for, if there is a rehearsal.
    pub(crate) rehearsed: RefCell<Option<HashSet<Kernel>>>,
    /// The host's part of the memory that ranks share: its address, its length, and its address on the device.
    pub(crate) host: Cell<(usize, usize, u64)>,
    pub(crate) context: Arc<DeviceContext>,
}

// SAFETY: any thread may use handles of the driver and of its libraries, one at a time, and this value is not `Sync`.
// The counts of each `Rc` change only within this value.
unsafe impl Send for Cuda {}

impl Cuda {
    /// The device with this number among the devices that the driver lists.
    ///
    /// # Errors
    /// Z0430 to Z0436 if a library, the device or its memory is not available.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let context = Arc::new(DeviceContext::open(ordinal)?);
        let staging = HandleStaging::new(&context)?;
        let products = Products::new(&context)?;
        Ok(Self::of(context, 0, Some(staging), products))
    }

    fn of(context: Arc<DeviceContext>, queue: usize, staging: Option<HandleStaging>, products: Products) -> Self {
        Self {
            modules: RefCell::default(),
            products: RefCell::new(products),
            staging: RefCell::new(staging),
            workspace: QueueWorkspace::default(),
            graphs: RefCell::default(),
            groups: RefCell::new(NcclGroups::none()),
            events: RefCell::default(),
            queue: Cell::new(queue),
            rehearsed: RefCell::default(),
            host: Cell::default(),
            context,
        }
    }

    /// A handle that reads the results of all ops so far.
    pub(crate) fn aside(&self) -> Self {
        let made = self.context.enter().and_then(|()| {
            self.context.join_all(ASIDE)?;
            HandleStaging::new(&self.context)
        });
        let staging = made.map_err(|error| self.fail(error)).ok();
        Self::of(Arc::clone(&self.context), ASIDE, staging, Products::none(&self.context))
    }

    /// The device's name.
    ///
    /// # Errors
    /// Z0436 if the driver does not report it.
    pub fn name(&self) -> Result<String, CudaError> {
        self.context.name()
    }

    /// The device's address of an address in the host's part of the memory that ranks share.
    pub(crate) fn reached(&self, host: usize) -> u64 {
        let (start, len, on_device) = self.host.get();
        assert!(host.wrapping_sub(start) < len, "{host:#x} is not in the segment of this device");
        on_device + (host - start) as u64
    }

    /// The device's address of a count: in the memory that ranks share, or in memory that this device has allocated on the host,
    /// which has one address for both.
    pub(crate) fn of_count(&self, word: &AtomicU32) -> u64 {
        let (host, (start, len, _)) = (word.as_ptr().addr(), self.host.get());
        if host.wrapping_sub(start) < len { self.reached(host) } else { host as u64 }
    }

    /// The first error, if there was one.
    pub fn error(&self) -> Option<CudaError> {
        self.context.failure().cloned()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.context.failure().is_some()
    }

    /// Keeps an error, if it is the first.
    pub(crate) fn fail(&self, error: CudaError) {
        self.context.fail(error);
    }

    /// Runs `something`, unless the device has failed or this is a rehearsal; keeps its error.
    pub(crate) fn attempt(&self, something: impl FnOnce() -> Result<(), CudaError>) {
        if !self.rehearses() {
            self.attempt_always(something);
        }
    }

    /// The same, but in a rehearsal, too.
    pub(crate) fn attempt_always(&self, something: impl FnOnce() -> Result<(), CudaError>) {
        if self.has_failed() {
            return;
        }
        if let Err(error) = self.context.enter().and_then(|()| something()) {
            self.fail(error);
        }
    }

    /// The entered queue.
    pub(crate) fn queue(&self) -> usize {
        self.queue.get()
    }

    pub(crate) fn set_queue(&self, queue: usize) {
        self.queue.set(queue);
    }

    pub(crate) fn stream(&self) -> cu::CUstream {
        self.context.stream(self.queue.get())
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.has_failed() {
            self.leave_groups(false);
        }
        self.graphs.borrow_mut().abandon(&self.context);
        // Kernels and copies that still run use the resources that are dropped here.
        let is_done = if self.queue() == ASIDE {
            // A run continues in the other queues.
            self.context.enter().and_then(|()| self.context.finish(ASIDE)).is_ok()
        } else {
            self.context.settle()
        };
        self.leave_groups(is_done);
        if !is_done {
            std::mem::forget((self.staging.take(), self.graphs.take()));
            return;
        }
        // SAFETY: all queues are empty, and nobody launches anything afterwards.
        unsafe {
            self.graphs.borrow_mut().unload(&self.context);
            self.modules.borrow_mut().unload(&self.context);
            for event in self.events.borrow_mut().drain(..) {
                self.context.drop_event(event);
            }
        }
    }
}
