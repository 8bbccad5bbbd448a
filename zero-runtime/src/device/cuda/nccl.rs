//! NCCL: groups of ranks between whose devices it carries bytes, as work of the queue that was entered. It only carries: it is
//! given sends, receives and gathers, and what is summed, kernels sum. Its communicators do not block, so the host looks how they are.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys as cu;

use super::context::DeviceContext;
use super::error::CudaError;
use super::library::{Nccl, nccl};
use super::memory::CudaMemory;
use crate::device::{Carried, Device, DeviceMemory, Group, GroupPart};
use crate::view::{View, ViewMut};

/// The oldest version that is used: 2.28, whose configuration this is.
const VERSION_MIN: c_int = 22_800;

/// Values of `ncclResult_t`; others are faults.
const SUCCESS: c_int = 0;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// `ncclUint8`: bytes are carried, whatever they are.
const BYTES: c_int = 1;

/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

const NAME_BYTES: usize = 128;
const POLL: Duration = Duration::from_micros(20);

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId([c_char; NAME_BYTES]);

/// `ncclConfig_t` of 2.28. A newer library takes what it does not find here as undefined.
#[repr(C)]
pub(super) struct Configuration {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    blocks_min: c_int,
    blocks_max: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    in_network: c_int,
    policy: c_int,
    shrink_share: c_int,
    multicast_blocks: c_int,
    channels_per_peer: c_int,
    link_centric: c_int,
}

// As C lays out the struct of the header.
const _: () = assert!(size_of::<Configuration>() == 80);

impl Configuration {
    fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: VERSION_MIN as c_uint,
            blocking: 0,
            cluster: UNDEFINED,
            blocks_min: UNDEFINED,
            blocks_max: UNDEFINED,
            network: null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: null(),
            in_network: UNDEFINED,
            policy: UNDEFINED,
            shrink_share: UNDEFINED,
            multicast_blocks: UNDEFINED,
            channels_per_peer: UNDEFINED,
            link_centric: UNDEFINED,
        }
    }
}

/// The groups that a rank is in.
pub(super) struct NcclGroups {
    communicators: Vec<Communicator>,
}

/// A communicator of NCCL.
struct Communicator {
    library: &'static Nccl,
    ordinal: usize,
    /// Null once it has gone.
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

/// The version of the library, and names of so many groups.
pub(super) fn name_groups(count: usize, ordinal: usize) -> Result<Vec<u8>, CudaError> {
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

/// What a result says, unless it is one of success or of work that goes on.
fn check(
    library: &Nccl,
    handle: *mut c_void,
    ordinal: usize,
    call: &'static str,
    result: c_int,
) -> Result<(), CudaError> {
    if let SUCCESS | IN_PROGRESS = result {
        return Ok(());
    }
    let text = |text: *const c_char| {
        // SAFETY: a text of the library, which ends in a zero and stays until its next call, or null.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned())
    };
    // SAFETY: any number may be asked for, and a communicator that is there, or none.
    let (meaning, last) = unsafe { ((library.ncclGetErrorString)(result), (library.ncclGetLastError)(handle)) };
    let said = [text(meaning), text(last)].into_iter().flatten().filter(|said| !said.is_empty());
    Err(CudaError::Carrier { call, ordinal, reason: said.collect::<Vec<_>>().join(": ") })
}

impl NcclGroups {
    pub fn none() -> Self {
        Self { communicators: Vec::new() }
    }

    /// Joins groups one after another, as all ranks do in one order, and exchanges something in each: a rank that meets another for
    /// the first time waits for it, which no op may. An error where `goes_on` says no.
    pub fn join(
        context: &Arc<DeviceContext>,
        groups: &[Group],
        names: &[u8],
        goes_on: &dyn Fn() -> bool,
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
                // The rank that was told that another one has gone says so.
                let reason = "another rank has ended, or does not come".to_owned();
                return Err(CudaError::Carrier { call: "ncclCommInitRankConfig", ordinal: context.ordinal, reason });
            }
        }
        Ok(joined)
    }

    /// Exchanges a byte with all that this rank will exchange something with, in the way in which it will. False where `goes_on` says no before.
    fn greet(
        &self,
        context: &Arc<DeviceContext>,
        number: usize,
        group: &Group,
        room: &CudaMemory,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, CudaError> {
        let others = (0..group.members.len()).filter(|&other| other != group.own);
        let (sent, received) = (room.start().addr(), room.start().addr() + 1);
        let send = |other| MemberBytes { sends: true, other, address: sent, len: 1 };
        let receive = |other| MemberBytes { sends: false, other, address: received + other, len: 1 };
        let greeting: Vec<MemberBytes> = match group.part {
            GroupPart::Exchanges => others.flat_map(|other| [send(other), receive(other)]).collect(),
            GroupPart::Sends => others.map(send).collect(),
            GroupPart::Receives => others.map(receive).collect(),
            GroupPart::Gathers => Vec::new(),
        };
        let stream = context.stream(0);
        // SAFETY: memory that is this call's own until its queue is done.
        let is_queued = unsafe {
            match group.part {
                GroupPart::Gathers => self.gather(number, [sent, received], 1, stream, goes_on)?,
                _ => self.exchange(number, &mut greeting.into_iter(), stream, goes_on)?,
            }
        };
        if !is_queued {
            return Ok(false);
        }
        while !context.is_idle() {
            self.state()?;
            if !goes_on() {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }

    /// Has a queue send and receive all these at once. False if `goes_on` said no before it was in the queue.
    ///
    /// # Safety
    /// They stay, nobody writes what is sent and nobody touches what is received, until the queue has done it; the other
    /// members of the group have queues do the counterparts, in the order of this rank.
    unsafe fn exchange(
        &self,
        number: usize,
        parcels: &mut dyn Iterator<Item = MemberBytes>,
        stream: cu::CUstream,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, CudaError> {
        let communicator = &self.communicators[number];
        let Communicator { library, handle, .. } = *communicator;
        if handle.is_null() {
            return Ok(false);
        }
        // SAFETY: a communicator that is there, and by the caller's promise.
        unsafe {
            communicator.check("ncclGroupStart", (library.ncclGroupStart)())?;
            let mut refused = Ok(());
            for MemberBytes { sends, other, address, len } in parcels {
                let (address, other) = (std::ptr::without_provenance_mut(address), other as c_int);
                let (call, result) = if sends {
                    ("ncclSend", (library.ncclSend)(address, len, BYTES, other, handle, stream))
                } else {
                    ("ncclRecv", (library.ncclRecv)(address, len, BYTES, other, handle, stream))
                };
                refused = refused.and_then(|()| communicator.check(call, result));
            }
            // A group that was started is ended, whatever came of it.
            let ended = (library.ncclGroupEnd)();
            refused?;
            communicator.check("ncclGroupEnd", ended)?;
        }
        communicator.settle(goes_on)
    }

    /// Has a queue gather so many bytes of each member. The addresses are those of its own and of all. False as for an exchange.
    ///
    /// # Safety
    /// As there.
    unsafe fn gather(
        &self,
        number: usize,
        [own, all]: [usize; 2],
        len: usize,
        stream: cu::CUstream,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, CudaError> {
        let communicator = &self.communicators[number];
        let Communicator { library, handle, .. } = *communicator;
        if handle.is_null() {
            return Ok(false);
        }
        let (own, all) = (std::ptr::without_provenance(own), std::ptr::without_provenance_mut(all));
        // SAFETY: a communicator that is there, and by the caller's promise.
        let result = unsafe { (library.ncclAllGather)(own, all, len, BYTES, handle, stream) };
        communicator.check("ncclAllGather", result)?;
        communicator.settle(goes_on)
    }

    /// An error that a communicator has met since it was last asked. That another rank has gone is not this one's to say.
    pub fn state(&self) -> Result<(), CudaError> {
        self.communicators.iter().try_for_each(|communicator| communicator.state().map(|_| ()))
    }

    /// Leaves all groups. Where work of theirs may still wait for others, that ends.
    pub fn leave(&mut self, is_done: bool) {
        for communicator in &mut self.communicators {
            communicator.leave(is_done);
        }
    }
}

/// A stretch of memory of this device, to or from another member.
struct MemberBytes {
    sends: bool,
    other: usize,
    address: usize,
    len: usize,
}

impl Communicator {
    fn check(&self, call: &'static str, result: c_int) -> Result<(), CudaError> {
        check(self.library, self.handle, self.ordinal, call, result)
    }

    /// Whether what it was last asked for still goes on.
    fn state(&self) -> Result<bool, CudaError> {
        let mut state = SUCCESS;
        if self.handle.is_null() {
            return Ok(false);
        }
        // SAFETY: a communicator that is there, and room for a number.
        let result = unsafe { (self.library.ncclCommGetAsyncError)(self.handle, &mut state) };
        self.check("ncclCommGetAsyncError", result)?;
        if state == REMOTE_ERROR {
            return Ok(true);
        }
        self.check("ncclCommGetAsyncError", state).map(|()| state == IN_PROGRESS)
    }

    /// Waits until it has taken over what it was asked for: only then it is in the queue. False where `goes_on` says no before.
    fn settle(&self, goes_on: &dyn Fn() -> bool) -> Result<bool, CudaError> {
        while self.state()? {
            if !goes_on() {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }

    fn leave(&mut self, is_done: bool) {
        let handle = std::mem::replace(&mut self.handle, null_mut());
        if !handle.is_null() {
            let end = if is_done { self.library.ncclCommDestroy } else { self.library.ncclCommAbort };
            // SAFETY: a communicator that is used nowhere after. There is nobody to tell a failure.
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
    /// [`Device::carry`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn carry_in(
        &self,
        group: usize,
        parcels: &mut dyn Iterator<Item = Carried<Self>>,
        goes_on: &dyn Fn() -> bool,
    ) {
        let mut parcels = parcels.map(|parcel| match parcel {
            Carried::Send { to, bytes } => {
                MemberBytes { sends: true, other: to, address: bytes.address().addr(), len: bytes.len() }
            }
            Carried::Receive { from, bytes } => {
                MemberBytes { sends: false, other: from, address: bytes.address().addr(), len: bytes.len() }
            }
        });
        let groups = self.groups.borrow();
        // SAFETY: by the caller's promise.
        self.attempt(|| unsafe { groups.exchange(group, &mut parcels, self.stream(), goes_on) }.map(|_| ()));
    }

    /// [`Device::all_gather`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn all_gather_in<T>(
        &self,
        group: usize,
        own: View<Self, T>,
        all: ViewMut<Self, T>,
        goes_on: &dyn Fn() -> bool,
    ) {
        let addresses = [own.address().addr(), all.address().addr()];
        let (groups, len) = (self.groups.borrow(), own.len() * size_of::<T>());
        // SAFETY: by the caller's promise.
        self.attempt(|| unsafe { groups.gather(group, addresses, len, self.stream(), goes_on) }.map(|_| ()));
    }

    /// Keeps an error of a group, if there is one, and ends what waits for others then.
    pub(super) fn look_at_groups(&self) {
        let state = self.groups.borrow().state();
        if let Err(error) = state {
            self.fail(error);
            self.disconnect();
        }
    }
}
