//! Arena: the memory of one rank on its device, and the memory that all ranks of a host share. Finds the address of a
//! place of the plan. Never decides which op may use it, or when: the schedule does.
#![allow(unsafe_code)]

mod doing;

use std::sync::{Arc, Mutex, PoisonError};

use zero_plan::footprint::{
    CONTROL_BYTES, NUMBER_ROUNDS, RunSize, exchanged_bytes, private_mapping_bytes, words_bytes,
};
use zero_plan::lines::PAGE_BYTES;
use zero_plan::place::{Place, Places};
use zero_plan::{Axis, Coordinates, Home, Kind, Memory as Regions, PipelineStage, Plan, TransportKind, Width};

use crate::device::{Device, DeviceError, DeviceMemory, Exchange, Segment, SharedParts, Stored, StoredMut};
use crate::view::{View, ViewMut};
pub use doing::op_words;

/// The memory of one rank under a plan.
pub struct Arena<'p, D: Device> {
    plan: &'p Plan<'p>,
    rank: usize,
    coordinates: Coordinates,
    private: D::Memory,
    /// The states that this rank keeps in the memory of its host, if it keeps some there.
    host: Option<D::Memory>,
    /// The memory that all ranks of the host share, as the host reaches it.
    segment: Arc<Segment>,
    /// The memory that ranks share, as the device reaches it.
    shared: D::Memory,
    /// The words of a step, which only the engine reads and writes.
    words: D::Memory,
    map: SegmentMap,
    /// The device that has this memory, until an engine takes the device.
    device: Mutex<Option<D>>,
}

/// The layout of the memory that the ranks of a host share: a control block and numbers for each rank, the common parts
/// of ranks along `zero`, and each rank's shared part.
struct SegmentMap {
    numbers: usize,
    /// Start of each rank's common part; ranks along `zero` have the same one.
    commons: Vec<usize>,
    /// Start of each rank's shared part.
    shared: Vec<usize>,
    /// Length of the segment of the host.
    segment_bytes: usize,
    /// Bytes that each rank contributes to the memory that the devices of a host share, if it is separate from the segment.
    parts: Vec<usize>,
}

impl SegmentMap {
    fn of(plan: &Plan, rank: usize) -> Self {
        let mesh = &plan.config.mesh;
        let (first, end_rank) = plan.config.sharing(rank);
        let is_here = |rank: &usize| (first..end_rank).contains(rank);
        let ranks = mesh.ranks();
        let numbers = pages(ranks * CONTROL_BYTES);
        let on_host = numbers + pages(ranks * NUMBER_ROUNDS * exchanged_bytes(plan.agreed_values()));
        let is_apart = matches!(plan.config.transport, TransportKind::Peer | TransportKind::Nccl);
        let mut end = if is_apart { 0 } else { on_host };
        let mut take = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(plan.config.device.page_bytes());
            start
        };
        let mut commons = vec![0; ranks];
        for rank in 0..ranks {
            let first = mesh.rank(plan.places(mesh.coordinates(rank)).first_in_common());
            let bytes = if is_here(&rank) { plan.of_rank(rank).memory.bytes_of(Home::Common) } else { 0 };
            commons[rank] = if rank == first { take(bytes) } else { commons[first] };
        }
        let bytes = |rank: usize| if is_here(&rank) { plan.of_rank(rank).memory.bytes_of(Home::Shared) } else { 0 };
        let shared: Vec<usize> = (0..ranks).map(|rank| take(bytes(rank))).collect();
        let ends = shared.iter().skip(1).copied().chain([end]);
        let parts = shared.iter().zip(ends).map(|(start, end)| end - start).collect();
        Self { numbers, commons, shared, segment_bytes: if is_apart { on_host } else { end }, parts }
    }
}

/// Bytes of the segment that a rank shares with all other ranks of its host.
pub fn segment_bytes(plan: &Plan, rank: usize) -> usize {
    SegmentMap::of(plan, rank).segment_bytes
}

/// The most host memory, in bytes, that the ranks on the host of `rank` use together: shared memory, each rank's
/// private memory if it lies on the host, the states that it keeps there, and memory outside the arenas.
pub fn job_bytes(plan: &Plan, rank: usize, run: &RunSize) -> usize {
    let (first, end) = plan.config.sharing(rank);
    let is_host = plan.config.device.is_host();
    let own = |rank: usize| {
        let memory = &plan.of_rank(rank).memory;
        memory.bytes_of(Home::Host) + if is_host { memory.bytes_of(Home::Private) } else { 0 }
    };
    segment_bytes(plan, rank) + (first..end).map(own).sum::<usize>() + (end - first) * plan.host_bytes(run)
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl<'p, D: Device> Arena<'p, D> {
    /// Allocates `rank`'s private memory on `device`, and on its host what the plan keeps there; `segment` has
    /// [`segment_bytes`] bytes and is the same for all ranks of the host.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the host has too little memory; the device's own error if the device has too little.
    pub fn new(
        plan: &'p Plan<'p>,
        rank: usize,
        segment: Arc<Segment>,
        device: D,
        exchange: Option<&mut Exchange>,
    ) -> Result<Self, DeviceError> {
        let mesh = &plan.config.mesh;
        assert!(rank < mesh.ranks(), "rank {rank} of {}", mesh.ranks());
        let map = SegmentMap::of(plan, rank);
        assert_eq!(segment.len(), map.segment_bytes, "the shared segment does not have the planned size");
        let private = device.allocate(private_mapping_bytes(plan.config.device, &plan.of_rank(rank).memory))?;
        let host_bytes = plan.of_rank(rank).memory.bytes_of(Home::Host);
        let host = if host_bytes > 0 { Some(device.allocate_on_host(host_bytes)?) } else { None };
        let (first, end) = plan.config.sharing(rank);
        let parts = SharedParts { bytes: map.parts[first..end].to_vec(), own: rank - first, exchange };
        let shared = device.share(Arc::clone(&segment), parts)?;
        let words = device.allocate(pages(words_bytes(plan.agreed_values(), mesh.ranks())))?;
        device.prepare(plan.of_rank(rank).events())?;
        let coordinates = mesh.coordinates(rank);
        let mut arena =
            Self { plan, rank, coordinates, private, host, segment, shared, words, map, device: Mutex::default() };
        // SAFETY: the place is this rank's own, and no view of it is made elsewhere; the engine that takes the device
        // also keeps the arena.
        unsafe { device.lend(arena.bytes_mut(arena.places().product_workspace())) };
        arena.device = Mutex::new(Some(device));
        Ok(arena)
    }

    /// Returns the device that the arena was allocated on, for the engine that works on this memory.
    ///
    /// # Panics
    /// If the device has already been taken: a rank has one engine.
    pub fn take_device(&self) -> D {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner).take();
        device.expect("a device that no other engine of this rank has taken")
    }

    /// Runs `something` on the arena's device, before an engine takes the device.
    pub fn with_device<R>(&self, something: impl FnOnce(&D) -> R) -> R {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        something(device.as_ref().expect("a device that no engine has taken"))
    }

    /// The plan that the arena follows.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// The rank that the arena belongs to.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The coordinates of that rank in the mesh.
    pub fn coordinates(&self) -> Coordinates {
        self.coordinates
    }

    /// The part of the plan for this rank's pipeline stage.
    pub fn pipeline_stage(&self) -> &'p PipelineStage<'p> {
        &self.plan.pipeline_stages[self.coordinates.pipeline]
    }

    /// Where this rank's bytes lie.
    pub fn places(&self) -> Places<'p> {
        self.plan.places(self.coordinates)
    }

    /// The arena's regions.
    pub fn memory(&self) -> &'p Regions {
        &self.pipeline_stage().memory
    }

    /// The rank at `index` along an axis, and at this rank's place along the other axes.
    pub fn along(&self, axis: Axis, index: usize) -> usize {
        let at = self.coordinates;
        self.plan.config.mesh.rank(match axis {
            Axis::Zero => Coordinates { zero: index, ..at },
            Axis::Replica => Coordinates { replica: index, ..at },
            Axis::Pipeline => Coordinates { pipeline: index, ..at },
        })
    }

    /// The lengths of this rank's private mapping, and of the mappings that it shares with other ranks.
    pub fn mapped_bytes(&self) -> [usize; 2] {
        let is_apart = self.shared.start() != self.segment.ptr();
        [self.private.len(), self.shared.len() + if is_apart { self.segment.len() } else { 0 }]
    }

    /// Bytes that were allocated in the memory of the host for the states that this rank keeps there.
    pub fn host_bytes(&self) -> usize {
        self.host.as_ref().map_or(0, DeviceMemory::len)
    }

    /// First byte of the words of a step, which are [`words_bytes`] long: an address on the device.
    pub fn words_start(&self) -> *mut u8 {
        self.words.start()
    }

    /// The segment that all ranks of this host share.
    pub fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.segment)
    }

    /// First byte of the segment: the control blocks.
    pub fn segment_start(&self) -> *mut u8 {
        self.segment.ptr()
    }

    /// The address of `rank`'s reason for exchange `round`, which its numbers follow.
    pub fn numbers(&self, rank: usize, round: u32) -> *mut u8 {
        assert!(rank < self.plan.config.mesh.ranks());
        let one = exchanged_bytes(self.plan.agreed_values());
        let at = self.map.numbers + (rank * NUMBER_ROUNDS + round as usize % NUMBER_ROUNDS) * one;
        // SAFETY: within the segment, which has room for the numbers of all rounds of all ranks there.
        unsafe { self.segment.ptr().add(at) }
    }

    /// The address of a place of `rank` on the device. A common place has the same address for each rank that shares
    /// it.
    fn address(&self, rank: usize, place: Place) -> *mut u8 {
        let memory = if rank == self.rank { self.memory() } else { &self.plan.of_rank(rank).memory };
        let region = &memory.regions[place.region as usize];
        assert!(
            self.plan.config.reaches(self.rank, rank) || region.bytes == 0,
            "{place:?} of rank {rank} lies elsewhere"
        );
        let is_own = rank == self.rank || !region.home.is_private();
        assert!(is_own, "{} of rank {rank} is private to it", place.region.name());
        let (mapping, start) = match region.home {
            Home::Private => (&self.private, 0),
            Home::Host => (self.host.as_ref().expect("memory for a region that has bytes"), 0),
            Home::Shared => (&self.shared, self.map.shared[rank]),
            Home::Common => (&self.shared, self.map.commons[rank]),
            Home::Disk => panic!("{} lies in a file", place.region.name()),
        };
        let bytes = region.bytes * region.home.holders(&self.plan.config);
        assert!(place.end_bytes() <= bytes, "{place:?} of {bytes} bytes");
        let first_byte = start + region.offset_bytes + place.offset_bytes;
        assert!(first_byte + place.len_bytes <= mapping.len(), "{} beyond its mapping", place.region.name());
        mapping.start().wrapping_add(first_byte)
    }

    /// The bytes of `rank` at a place, to read.
    ///
    /// # Safety
    /// Nobody writes it while the view lives.
    pub unsafe fn bytes_of(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        // SAFETY: memory starts zeroed, so bytes are initialised; the caller promises the rest.
        unsafe { View::from_raw(self.address(rank, place), place.len_bytes) }
    }

    /// The bytes of this rank at a place, to read.
    ///
    /// # Safety
    /// As for [`Arena::bytes_of`].
    pub unsafe fn bytes(&self, place: Place) -> View<'_, D, u8> {
        // SAFETY: by the caller's promise.
        unsafe { self.bytes_of(self.rank, place) }
    }

    /// The bytes of this rank at a place, to write.
    ///
    /// # Safety
    /// Nobody else reads or writes it while the view lives.
    pub unsafe fn bytes_mut(&self, place: Place) -> ViewMut<'_, D, u8> {
        // SAFETY: as for `bytes_of`.
        unsafe { ViewMut::from_raw(self.address(self.rank, place), place.len_bytes) }
    }

    /// This rank's numbers at a place whose numbers have one width, to read.
    ///
    /// # Safety
    /// As for [`Arena::bytes_of`].
    pub unsafe fn stored(&self, place: Place) -> Stored<'_, D> {
        // SAFETY: by the caller's promise.
        Stored::of(self.width(place), unsafe { self.bytes(place) })
    }

    /// This rank's numbers at a place whose numbers have one width, to write.
    ///
    /// # Safety
    /// As for [`Arena::bytes_mut`].
    pub unsafe fn stored_mut(&self, place: Place) -> StoredMut<'_, D> {
        // SAFETY: by the caller's promise.
        StoredMut::of(self.width(place), unsafe { self.bytes_mut(place) })
    }

    /// The width of the numbers at a place. An inbox has a single width only if sums over hosts are added up in it.
    pub fn width(&self, place: Place) -> Width {
        let sums = (place.region == Kind::Inbox && self.plan.config.subtotal_axis().is_some()).then_some(Width::F32);
        place.region.width(&self.plan.config).or(sums).expect("a region of one width")
    }
}
