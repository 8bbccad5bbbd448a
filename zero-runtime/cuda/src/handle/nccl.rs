//! NCCL: groups of ranks between whose devices NCCL carries bytes, in the entered queue. It only carries: it does
//! sends, receives and gathers, and kernels do the sums. Its communicators do not block, so the host polls their state.
//!
//! NCCL's documented rules for graphs, and why they hold here:
//! - All its ranks must agree on whether work is captured, and launch the graphs of one capture together. Ranks walk
//!   their tables in the same way, and capture the same pass.
//! - Work of several communicators of a device begins there in the order of the host's calls (`launch/order.rs`). The
//!   host calls in the order of the tables. Each communicator settles before the next call, so that work that NCCL does
//!   in its own threads is captured in that order too.
//! - Captured work and other work of a communicator may take turns. Here they never run at the same time: the host has
//!   seen a pass end before it starts the next one.
//! - A communicator may only be destroyed once no graph has work of it: see [`NcclGroups::leave`].
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys as cu;

use crate::context::{DeviceContext, QUEUES};
use crate::error::CudaError;
use crate::library::{Nccl, nccl};
use crate::memory::CudaMemory;
use crate::nccl_types::{Configuration, NAME_BYTES, UniqueId, VERSION_MIN};
use zero_core::device::{Carried, DeviceMemory, GoesOn, Group, GroupPart};
use zero_core::time::LongerSleeps;

/// Values of `ncclResult_t`; others are faults.
const SUCCESS: c_int = 0;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// `ncclUint8`: everything is carried as bytes.
const BYTES: c_int = 1;

/// The groups that a rank is in.
pub(crate) struct NcclGroups {
    communicators: Vec<Communicator>,
    /// The transfers of the op that is being carried; their memory is kept from one op to the next.
    transfers: Vec<NcclTransfer>,
}

/// A communicator of NCCL.
struct Communicator {
    library: &'static Nccl,
    ordinal: usize,
    /// Null once it has been destroyed.
    handle: *mut c_void,
}

/// The library, if it is new enough, and its version.
fn library() -> Result<(&'static Nccl, c_int), CudaError> {
    let (library, mut version) = (nccl()?, 0);
    // SAFETY: room for a number.
    let result = unsafe { (library.ncclGetVersion)(&mut version) };
    if result != SUCCESS || version < VERSION_MIN {
        return Err(CudaError::CarrierVersion { found: version, expected: VERSION_MIN, of_rank_0: false });
    }
    Ok((library, version))
}

/// The version of the library, and names of `count` groups.
pub(crate) fn name_groups(count: usize, ordinal: usize) -> Result<Vec<u8>, CudaError> {
    let (library, version) = library()?;
    let mut names = version.to_le_bytes().to_vec();
    for _ in 0..count {
        let mut name = UniqueId([0; NAME_BYTES]);
        // SAFETY: room for a name.
        let result = unsafe { (library.ncclGetUniqueId)(&mut name) };
        check(library, null_mut(), ordinal, "ncclGetUniqueId", result)?;
        names.extend(name.0.map(|byte| byte as u8));
    }
    Ok(names)
}

/// The name with this number.
fn name_at(names: &[u8], number: usize) -> UniqueId {
    let start = size_of::<c_int>() + number * NAME_BYTES;
    let mut name = UniqueId([0; NAME_BYTES]);
    name.0.iter_mut().zip(&names[start..start + NAME_BYTES]).for_each(|(to, &byte)| *to = byte as c_char);
    name
}

/// The error of a result, unless the result is success or work in progress. The loss of another rank is no error here
/// either, because reporting it is not this rank's task.
fn check(
    library: &Nccl,
    handle: *mut c_void,
    ordinal: usize,
    call: &'static str,
    result: c_int,
) -> Result<(), CudaError> {
    if let SUCCESS | IN_PROGRESS | REMOTE_ERROR = result {
        return Ok(());
    }
    let text = |text: *const c_char| {
        // SAFETY: a text of the library, which ends in a zero and lives until its next call, or null.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned())
    };
    // SAFETY: any number is a valid argument, and the communicator exists or is null.
    let (meaning, last) = unsafe { ((library.ncclGetErrorString)(result), (library.ncclGetLastError)(handle)) };
    let said = [text(meaning), text(last)].into_iter().flatten().filter(|said| !said.is_empty());
    Err(CudaError::Communicator { call, ordinal, reason: said.collect::<Vec<_>>().join(": ") })
}

impl NcclGroups {
    pub fn none() -> Self {
        Self { communicators: Vec::new(), transfers: Vec::new() }
    }

    /// Joins groups one after another, in the same order on all ranks, and exchanges a byte in each: a rank that
    /// reaches another rank for the first time waits for it, which no op may do. An error if `goes_on` returns false.
    pub fn join(
        context: &Arc<DeviceContext>,
        groups: &[Group],
        names: &[u8],
        goes_on: &GoesOn,
    ) -> Result<Self, CudaError> {
        let (library, found) = library()?;
        let expected = names.first_chunk().map_or(0, |version| c_int::from_le_bytes(*version));
        if found != expected {
            return Err(CudaError::CarrierVersion { found, expected, of_rank_0: true });
        }
        let mut joined = Self::none();
        let room = CudaMemory::new(context, 1 + groups.iter().map(|group| group.members.len()).max().unwrap_or(1))?;
        for (number, group) in groups.iter().enumerate() {
            let mut communicator = Communicator { library, ordinal: context.ordinal, handle: null_mut() };
            let (ranks, own) = (group.members.len() as c_int, group.own as c_int);
            let mut configuration = Configuration::new();
            // SAFETY: room for a handle, a name that one rank has made for this group, and a configuration of this layout.
            let result = unsafe {
                (library.ncclCommInitRankConfig)(
                    &mut communicator.handle,
                    ranks,
                    name_at(names, group.name),
                    own,
                    &mut configuration,
                )
            };
            communicator.check("ncclCommInitRankConfig", result)?;
            let mut is_met = communicator.settle(goes_on)?;
            joined.communicators.push(communicator);
            is_met = is_met && joined.greet(context, number, group, &room, goes_on)?;
            if !is_met {
                // The rank that was notified of the loss of another rank reports it.
                let reason = "another rank has ended, or has not joined".to_owned();
                return Err(CudaError::Communicator {
                    call: "ncclCommInitRankConfig",
                    ordinal: context.ordinal,
                    reason,
                });
            }
        }
        Ok(joined)
    }

    /// Does each kind of transfer of this rank in a group once, with a byte. False if `goes_on` returns false before
    /// that is done.
    fn greet(
        &self,
        context: &Arc<DeviceContext>,
        number: usize,
        group: &Group,
        room: &CudaMemory,
        goes_on: &GoesOn,
    ) -> Result<bool, CudaError> {
        let others = || (0..group.members.len()).filter(|&other| other != group.own);
        let (own, all) = (room.start().addr(), room.start().addr() + 1);
        let send = |to| NcclTransfer::Send { to, address: own, len: 1 };
        let receive = |from| NcclTransfer::Receive { from, address: all + from, len: 1 };
        let greetings = |part: &GroupPart| match part {
            GroupPart::Exchanges => others().flat_map(|other| [send(other), receive(other)]).collect(),
            GroupPart::Sends => others().map(send).collect(),
            GroupPart::Receives => others().map(receive).collect(),
            GroupPart::Gathers => vec![NcclTransfer::Gather { own, all, len: 1 }],
        };
        for greeting in group.parts.iter().map(greetings) {
            // SAFETY: memory that only this call uses until its queue is done.
            if !unsafe { self.exchange(number, &greeting, context.stream(0), goes_on)? } {
                return Ok(false);
            }
        }
        let mut sleeps = LongerSleeps::default();
        while !context.is_idle(QUEUES) {
            self.state()?;
            if !goes_on(sleeps.sleep()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a queue do all these transfers at once. False if `goes_on` returned false before they were in the queue.
    ///
    /// # Safety
    /// Until the queue has done them, the places exist, nobody writes the places that are sent, and nobody touches the
    /// places that receive. The other members of the group make queues do the counterparts, in the order of this rank.
    unsafe fn exchange(
        &self,
        number: usize,
        transfers: &[NcclTransfer],
        stream: cu::CUstream,
        goes_on: &GoesOn,
    ) -> Result<bool, CudaError> {
        let communicator = &self.communicators[number];
        let Communicator { library, handle, .. } = *communicator;
        if handle.is_null() {
            return Ok(false);
        }
        let at = std::ptr::without_provenance_mut;
        // SAFETY: a communicator that exists, and the caller's promise.
        unsafe {
            communicator.check("ncclGroupStart", (library.ncclGroupStart)())?;
            let mut refused = Ok(());
            for transfer in transfers {
                let (call, result) = match *transfer {
                    NcclTransfer::Send { to, address, len } => {
                        ("ncclSend", (library.ncclSend)(at(address), len, BYTES, to as c_int, handle, stream))
                    }
                    NcclTransfer::Receive { from, address, len } => {
                        ("ncclRecv", (library.ncclRecv)(at(address), len, BYTES, from as c_int, handle, stream))
                    }
                    NcclTransfer::Gather { own, all, len } => {
                        ("ncclAllGather", (library.ncclAllGather)(at(own), at(all), len, BYTES, handle, stream))
                    }
                };
                refused = refused.and_then(|()| communicator.check(call, result));
            }
            // A started group must be ended, even after an error.
            let ended = (library.ncclGroupEnd)();
            refused?;
            communicator.check("ncclGroupEnd", ended)?;
        }
        communicator.settle(goes_on)
    }

    /// An error that a communicator has had since it was last asked. The loss of another rank is not reported.
    pub fn state(&self) -> Result<(), CudaError> {
        self.communicators.iter().try_for_each(|communicator| communicator.state().map(|_| ()))
    }

    /// Leaves all groups that this rank is still in, and drops graphs, which may have work of them. Ends work that may
    /// still wait for other ranks.
    ///
    /// A communicator is destroyed once all its work has ended and no graph has any. Its work may wait for work of
    /// another communicator, and any capture for it ends first. So all communicators are told to end before one of them
    /// is waited for, and graphs are dropped in between.
    pub fn leave(&mut self, is_done: bool, drop_graphs: impl FnOnce()) {
        let Some(library) = self.communicators.iter().find(|one| !one.handle.is_null()).map(|one| one.library) else {
            return;
        };
        // SAFETY: a group that is ended below. A failure cannot be reported to anybody.
        let _ = unsafe { (library.ncclGroupStart)() };
        for communicator in &mut self.communicators {
            communicator.leave(is_done);
        }
        drop_graphs();
        // SAFETY: as above.
        let _ = unsafe { (library.ncclGroupEnd)() };
    }
}

/// A transfer, with addresses on this device.
#[derive(Clone, Copy, Hash)]
enum NcclTransfer {
    Send { to: usize, address: usize, len: usize },
    Receive { from: usize, address: usize, len: usize },
    Gather { own: usize, all: usize, len: usize },
}

impl Communicator {
    fn check(&self, call: &'static str, result: c_int) -> Result<(), CudaError> {
        check(self.library, self.handle, self.ordinal, call, result)
    }

    /// Whether the communicator's last work is still in progress.
    fn state(&self) -> Result<bool, CudaError> {
        let mut state = SUCCESS;
        if self.handle.is_null() {
            return Ok(false);
        }
        // SAFETY: a communicator that exists, and room for a number.
        let result = unsafe { (self.library.ncclCommGetAsyncError)(self.handle, &mut state) };
        self.check("ncclCommGetAsyncError", result)?;
        if state == REMOTE_ERROR {
            return Ok(true);
        }
        self.check("ncclCommGetAsyncError", state).map(|()| state == IN_PROGRESS)
    }

    /// Waits until it has accepted its work, which is in the queue only then. False if `goes_on` returns false before.
    fn settle(&self, goes_on: &GoesOn) -> Result<bool, CudaError> {
        let mut sleeps = LongerSleeps::default();
        while self.state()? {
            if !goes_on(sleeps.sleep()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leave(&mut self, is_done: bool) {
        let handle = std::mem::replace(&mut self.handle, null_mut());
        if !handle.is_null() {
            let end = if is_done { self.library.ncclCommDestroy } else { self.library.ncclCommAbort };
            // SAFETY: a communicator that is not used afterwards. A failure cannot be reported to anybody.
            let _ = unsafe { end(handle) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.leave(false);
    }
}

impl super::Cuda {
    /// [`Communicator::carry`].
    ///
    /// # Safety
    /// As for [`Communicator::carry`].
    pub(crate) unsafe fn carry_in(
        &self,
        group: usize,
        parcels: &mut dyn Iterator<Item = Carried<Self>>,
        goes_on: &GoesOn,
    ) {
        let mut transfers = std::mem::take(&mut self.groups.borrow_mut().transfers);
        transfers.clear();
        transfers.extend(parcels.map(|parcel| match parcel {
            Carried::Send { to, bytes } => NcclTransfer::Send { to, address: bytes.address().addr(), len: bytes.len() },
            Carried::Receive { from, bytes } => {
                NcclTransfer::Receive { from, address: bytes.address().addr(), len: bytes.len() }
            }
            Carried::Gather { own, all } => {
                NcclTransfer::Gather { own: own.address().addr(), all: all.address().addr(), len: own.len() }
            }
        }));
        self.call(("carry", group, &transfers[..]), || {
            // SAFETY: by the caller's promise.
            unsafe { self.groups.borrow().exchange(group, &transfers, self.stream(), goes_on) }.map(drop)
        });
        self.groups.borrow_mut().transfers = transfers;
    }

    /// Leaves all groups, even in the middle of a capture or of a graph that waits for other ranks. Nothing is carried
    /// afterwards.
    pub(crate) fn leave_groups(&self, is_done: bool) {
        self.groups.borrow_mut().leave(is_done, || self.graphs.borrow_mut().clear(&self.context));
    }

    /// Keeps an error of a group, if there is one, and then ends all work that waits for other ranks.
    pub(crate) fn look_at_groups(&self) {
        let state = self.groups.borrow().state();
        if let Err(error) = state {
            self.fail(error);
            self.leave_groups(false);
        }
    }
}
