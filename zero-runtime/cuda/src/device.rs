//! `Cuda` as a [`Device`]: memory and queues here, each kernel in the file of its family, which checks shapes. Never computes.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytemuck::Pod;

use super::activation::{activate, activate_backward};
use super::attention::{HEAD_DIM_MAX, attention, attention_backward};
use super::capture::Counting;
use super::context::{self, DeviceContext, STREAMS};
use super::cross_entropy::{cross_entropy, cross_entropy_backward};
use super::elementwise::{add, axpby, convert, copy, fill, mul, scale};
use super::embedding::{embed, embed_backward};
use super::error::CudaError;
use super::gate::{gate, gate_backward};
use super::handle::Cuda;
use super::handle::nccl;
use super::memory::CudaMemory;
use super::muon::{momentum, normalize, step_along};
use super::norm::{layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
use super::norm_heads::{rms_norm_heads, rms_norm_heads_backward};
use super::optimizer::{adamw, all_finite, update};
use super::ordinal;
use super::product::{linear, matmul};
use super::rotary::{rotary_table, rotate};
use super::rows::sum_rows;
use super::squared_error::{squared_error, squared_error_backward};
use super::sums::{add_mean, agree, reduce, squares};
use zero_core::device::{
    AdamW, Agreement, AttentionShape, Carried, Communicator, Counts, DecayRun, Device, DeviceDescription, DeviceError,
    Element, Failure, GoesOn, Group, HostCall, HyperBlock, Kernels, Mark, Matrix, Nonlinearity, Queues, ReportBlock,
    Rotary, Segment, SharedParts, Storage, Stored, StoredMut, Strided, StridedMut, Then, Weights, Write,
};
use zero_core::view::{View, ViewMut};

impl Device for Cuda {
    fn open(local_rank: usize) -> Result<Self, DeviceError> {
        Ok(Cuda::open(ordinal::of_rank(local_rank)?)?)
    }

    fn all() -> Result<Vec<Self>, DeviceError> {
        let devices = ordinal::all(DeviceContext::shown()?)?;
        if devices.is_empty() {
            return Err(CudaError::NoDevice { ordinal: 0, count: 0 }.into());
        }
        Ok(devices.into_iter().map(Cuda::open).collect::<Result<_, _>>()?)
    }

    fn description(&self) -> Option<DeviceDescription> {
        let name = self.context.enter().and_then(|()| self.name());
        let name = name.map_err(|error| self.fail(error)).ok()?;
        let [taken_bytes, memory_bytes] = self.context.memory_of_device();
        Some(DeviceDescription { name, memory_bytes, taken_bytes })
    }

    fn beside(&self) -> Self {
        self.aside()
    }

    fn failure(&self) -> Option<Failure> {
        self.error().map(Failure::from)
    }

    fn marks(&self) -> Vec<Mark> {
        Cuda::marks(self).unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        })
    }

    fn communicator(&self) -> Option<&dyn Communicator<Self>> {
        Some(self)
    }
}

impl Storage for Cuda {
    type Memory = CudaMemory;

    fn outside(&self) -> Vec<(&'static str, usize)> {
        self.context.outside()
    }

    unsafe fn lend(&self, workspace: ViewMut<Self, u8>) {
        self.workspace.lend(&workspace);
    }

    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        Ok(CudaMemory::new(&self.context, bytes)?)
    }

    fn allocate_on_host(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        Ok(CudaMemory::on_host(&self.context, bytes)?)
    }

    fn share(&self, segment: Arc<Segment>, parts: SharedParts) -> Result<Self::Memory, DeviceError> {
        let shared = CudaMemory::shared(&self.context, segment, parts)?;
        self.host.set(shared.host().unwrap_or_default());
        Ok(shared)
    }

    fn reach<T>(&self, host: *mut T) -> *mut T {
        std::ptr::without_provenance_mut(self.reached(host.addr()) as usize)
    }

    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        let (len, address) = (to.len(), to.address().addr() as u64);
        let mut fill = Some(fill);
        if len > 0 {
            // SAFETY: elements of a view, which nobody else uses as long as it lives, and no other queue uses
            // afterwards.
            self.attempt(|| unsafe { self.send(address, len, &mut fill) });
        }
        // `fill` expects to be called, even if nobody reads its elements.
        if let Some(fill) = fill {
            fill(&mut vec![T::zeroed(); len]);
        }
    }

    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        let (len, address) = (to.len(), to.address().addr() as u64);
        match self.kept_place_before(address, len * size_of::<T>()) {
            None => self.stage(to, fill),
            // SAFETY: elements that the host has filled in this pass, at an address aligned for any number, which the
            // device copies once the pass has ended.
            Some(place) => fill(unsafe { core::slice::from_raw_parts_mut(place.cast(), len) }),
        }
    }

    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]) {
        assert_eq!(from.len(), to.len(), "elements of the device, and room for them");
        if to.is_empty() {
            return;
        }
        self.call(("read", from.address().addr(), to.len()), || {
            // A read beside a run waited for its data when it began.
            if self.queue() != context::ASIDE {
                self.context.join_all(self.queue())?;
            }
            let mut staging = self.staging.borrow_mut();
            let staging = staging.as_mut().expect("a device without staging has failed");
            // SAFETY: elements of a view, which nobody writes as long as it lives; the queue comes after all others.
            unsafe { staging.receive(from.address().addr() as u64, to, self.queue()) }
        });
    }
}

impl Queues for Cuda {
    const QUEUES: bool = true;

    fn counts(&self) -> Option<&dyn Counts> {
        Some(self)
    }

    fn prepare(&self, events: usize) -> Result<(), DeviceError> {
        self.context.enter()?;
        let mut made = self.events.borrow_mut();
        while made.len() < events {
            made.push(self.context.event()?);
        }
        Ok(())
    }

    fn keep_calls(&self, calls: Vec<HostCall>) {
        self.context.keep_calls(calls);
    }

    fn call_host(&self, call: usize) {
        self.call(("host", call), || self.context.call_host(call, self.queue()));
    }

    fn enter(&self, queue: usize) {
        assert!(queue < context::QUEUES, "queue {queue} of {}", context::QUEUES);
        self.set_queue(queue);
    }

    fn record(&self, event: usize) {
        self.call(("record", event), || self.context.record(self.events.borrow()[event], self.queue()));
    }

    fn wait(&self, event: usize) {
        self.call(("wait", event), || self.context.wait(self.events.borrow()[event], self.queue()));
    }

    fn begin_repeated(&self, key: u64) {
        self.begin_pass(key);
    }

    fn end_repeated(&self) {
        self.end_pass();
    }

    fn rehearse(&self) {
        self.begin_rehearsal();
    }

    fn ready(&self) {
        self.end_rehearsal();
    }

    fn is_idle(&self) -> bool {
        self.look_at_groups();
        self.context.enter().is_err() || self.context.is_idle(STREAMS)
    }
}

impl Counts for Cuda {
    fn tell(&self, word: &AtomicU32, count: u32) {
        self.count(Counting::Tell, self.of_count(word), count);
    }

    fn await_count(&self, word: &AtomicU32, target: u32) {
        self.count(Counting::Await, self.of_count(word), target);
    }
}

impl Communicator<Cuda> for Cuda {
    fn name_groups(&self, count: usize) -> Result<Vec<u8>, DeviceError> {
        self.context.enter()?;
        Ok(nccl::name_groups(count, self.context.ordinal)?)
    }

    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), DeviceError> {
        self.context.enter()?;
        *self.groups.borrow_mut() = nccl::NcclGroups::join(&self.context, groups, names, goes_on)?;
        Ok(())
    }

    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<Self>>, goes_on: &GoesOn) {
        // SAFETY: by the caller's promise.
        unsafe { self.carry_in(group, parcels, goes_on) };
    }

    fn disconnect(&self) {
        self.leave_groups(false);
    }
}

/// Each kernel is a function of its name, in the file of its family.
macro_rules! forward {
    ($(
        $(#[$about:meta])*
        fn $name:ident $(<$($lifetime:lifetime)? $($generic:ident: $bound:ident $(+ $more:ident)*),*>)?
        (&self, $($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        impl Kernels for Cuda {
            const HEAD_DIM_MAX: usize = HEAD_DIM_MAX;
            // 256 MiB of logits in bf16. For each chunk of tokens, the gradient of the whole table of weights is read and
            // written in f32: 8 bytes an element, with 2 operations a row. A Hopper GPU does 240 operations in the time of a
            // byte, so that fewer than about 1000 rows would take longer to add up than to multiply.
            const LOGITS: usize = 1 << 27;
            const LOGITS_ROWS_MIN: usize = 1024;

            $(
                fn $name $(<$($lifetime)? $($generic: $bound $(+ $more)*),*>)?
                (&self, $($argument: $type),*) $(-> $result)? {
                    $name(self, $($argument),*)
                }
            )*
        }
    };
}

zero_core::kernels!(forward);
