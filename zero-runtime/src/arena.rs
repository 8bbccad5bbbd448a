//! Arena: the memory of one rank, each region at a constant offset, and the addresses of what peers share. Hands out
//! pointers within bounds; who may use them when is the schedule's business.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::config::Width;
use zero_plan::footprint::{CONTROL_BYTES, NUMBER_ROUNDS, PAGE_BYTES, exchanged_bytes};
use zero_plan::{Coordinates, Home, Kind, Memory, PipelineStage, Plan, RunSize};

use crate::device::{Cpu, Element, Stored, StoredMut, bf16};
use crate::launch::{LaunchError, Segment};
use crate::view::{View, ViewMut};

/// The memory of one rank under a plan.
pub struct Arena<'p> {
    plan: &'p Plan<'p>,
    rank: usize,
    coordinates: Coordinates,
    private: Segment,
    segment: Arc<Segment>,
    map: Map,
}

/// Where things lie in the segment that all ranks of a plan share: a control block for each rank, numbers for each rank,
/// what the ranks along `zero` hold in common, and each rank's shared part.
struct Map {
    numbers: usize,
    /// Start of each rank's common part; the ranks along `zero` have the same one.
    commons: Vec<usize>,
    /// Start of each rank's shared part.
    shared: Vec<usize>,
    bytes: usize,
}

impl Map {
    fn of(plan: &Plan) -> Self {
        let mesh = &plan.config.mesh;
        let ranks = mesh.ranks();
        let numbers = pages(ranks * CONTROL_BYTES);
        let mut end = numbers + pages(ranks * NUMBER_ROUNDS * exchanged_bytes(plan.agreed_values()));
        let mut take = |bytes: usize| {
            let start = end;
            end += pages(bytes);
            start
        };
        let mut commons = vec![0; ranks];
        for rank in 0..ranks {
            let at = mesh.coordinates(rank);
            let first = mesh.rank(Coordinates { zero: 0, ..at });
            commons[rank] = if rank == first { take(plan.of_rank(rank).memory.common_bytes) } else { commons[first] };
        }
        let shared = (0..ranks).map(|rank| take(plan.of_rank(rank).memory.shared_bytes)).collect();
        Self { numbers, commons, shared, bytes: end }
    }
}

/// Bytes of the segment that all ranks of a plan share.
pub(crate) fn segment_bytes(plan: &Plan) -> usize {
    Map::of(plan).bytes
}

/// Bytes that all ranks of a plan take together on one host, at most: what they share, what is private to each, and what
/// lies outside the arenas.
pub(crate) fn job_bytes(plan: &Plan, run: &RunSize) -> usize {
    let ranks = 0..plan.config.mesh.ranks();
    let private = ranks.map(|rank| plan.of_rank(rank).memory.private_bytes + plan.outside_bytes(run));
    segment_bytes(plan) + private.sum::<usize>()
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl<'p> Arena<'p> {
    /// Allocates what is private to `rank`; `segment` has [`segment_bytes`] bytes and is the same on all ranks.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the host has not that much memory to give.
    pub(crate) fn new(plan: &'p Plan<'p>, rank: usize, segment: Arc<Segment>) -> Result<Self, LaunchError> {
        let mesh = &plan.config.mesh;
        assert!(rank < mesh.ranks(), "rank {rank} of {}", mesh.ranks());
        let map = Map::of(plan);
        assert_eq!(segment.len(), map.bytes, "the shared segment has another size than planned");
        let private = Segment::private(pages(plan.of_rank(rank).memory.private_bytes.max(1)))?;
        Ok(Self { plan, rank, coordinates: mesh.coordinates(rank), private, segment, map })
    }

    /// The plan that it was laid out by.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// The rank that it belongs to.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Where that rank lies in the mesh.
    pub fn coordinates(&self) -> Coordinates {
        self.coordinates
    }

    /// What the ranks of its pipeline stage do.
    pub fn stage(&self) -> &'p PipelineStage<'p> {
        &self.plan.stages[self.coordinates.pipeline]
    }

    /// The rank at these coordinates.
    pub(crate) fn rank_at(&self, coordinates: Coordinates) -> usize {
        self.plan.config.mesh.rank(coordinates)
    }

    /// Its regions.
    pub fn memory(&self) -> &'p Memory {
        &self.stage().memory
    }

    /// How long the mapping is that is private to this rank, and the one that it shares with all others.
    pub fn mapped_bytes(&self) -> [usize; 2] {
        [self.private.len(), self.segment.len()]
    }

    /// First byte of the segment: the control blocks.
    pub(crate) fn segment_start(&self) -> *mut u8 {
        self.segment.ptr()
    }

    /// Where `rank` leaves the reason for exchange `round`, and then its numbers.
    pub(crate) fn numbers(&self, rank: usize, round: u32) -> *mut u8 {
        assert!(rank < self.plan.config.mesh.ranks());
        let one = exchanged_bytes(self.plan.agreed_values());
        let at = self.map.numbers + (rank * NUMBER_ROUNDS + round as usize % NUMBER_ROUNDS) * one;
        // SAFETY: within the segment, which has room for the numbers of all rounds of all ranks there.
        unsafe { self.segment.ptr().add(at) }
    }

    /// Address of `len` elements of region `kind` of `rank`, from element `at` of it. What ranks hold in common is one
    /// region, at the same address for each of them.
    pub(crate) fn address<E: Element>(&self, rank: usize, kind: Kind, at: usize, len: usize) -> *mut E {
        let region = self.plan.of_rank(rank).memory.region(kind);
        assert_eq!(size_of::<E>(), region.width.bytes(), "{} are of another width", kind.name());
        let (mapping, start, elements) = match region.home {
            Home::Private => {
                assert_eq!(rank, self.rank, "{} of rank {rank} is private to it", kind.name());
                (&self.private, 0, region.elements)
            }
            Home::Shared => (&*self.segment, self.map.shared[rank], region.elements),
            Home::Common => (&*self.segment, self.map.commons[rank], region.elements * self.plan.config.mesh.zero),
        };
        assert!(at + len <= elements, "{}: {at} + {len} of {elements} elements", kind.name());
        let first_byte = start + region.offset_bytes + at * size_of::<E>();
        assert!(first_byte + len * size_of::<E>() <= mapping.len(), "{} beyond its mapping", kind.name());
        // SAFETY: within the mapping, by the assertion; a multiple of an element's size, as every term is.
        unsafe { mapping.ptr().add(first_byte).cast::<E>() }
    }

    /// This rank's elements of a region, to read.
    ///
    /// # Safety
    /// Nobody writes them while the view lives.
    pub(crate) unsafe fn view<E: Element>(&self, kind: Kind, at: usize, len: usize) -> View<'_, Cpu, E> {
        // SAFETY: mapped memory starts zeroed, so all of it is initialised; the caller promises the rest.
        unsafe { View::from_raw(self.address(self.rank, kind, at, len), len) }
    }

    /// This rank's elements of a region, to write.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the view lives.
    pub(crate) unsafe fn view_mut<E: Element>(&self, kind: Kind, at: usize, len: usize) -> ViewMut<'_, Cpu, E> {
        // SAFETY: mapped memory starts zeroed, so all of it is initialised; the caller promises the rest.
        unsafe { ViewMut::from_raw(self.address(self.rank, kind, at, len), len) }
    }

    /// [`Arena::view`] of a region of any width.
    ///
    /// # Safety
    /// As for [`Arena::view`].
    pub(crate) unsafe fn stored(&self, kind: Kind, at: usize, len: usize) -> Stored<'_, Cpu> {
        // SAFETY: by the caller's promise.
        unsafe {
            match self.memory().region(kind).width {
                Width::F32 => self.view::<f32>(kind, at, len).into(),
                Width::BF16 => self.view::<bf16>(kind, at, len).into(),
            }
        }
    }

    /// [`Arena::view_mut`] of a region of any width.
    ///
    /// # Safety
    /// As for [`Arena::view_mut`].
    pub(crate) unsafe fn stored_mut(&self, kind: Kind, at: usize, len: usize) -> StoredMut<'_, Cpu> {
        // SAFETY: by the caller's promise.
        unsafe {
            match self.memory().region(kind).width {
                Width::F32 => self.view_mut::<f32>(kind, at, len).into(),
                Width::BF16 => self.view_mut::<bf16>(kind, at, len).into(),
            }
        }
    }

    /// Whether the shards of all ranks along `zero` lie contiguous, so that a gathered unit can be read where its owners
    /// write it.
    pub(crate) fn is_common(&self) -> bool {
        matches!(self.memory().region(Kind::Parameters).home, Home::Common)
    }

    /// Where a unit's whole flat buffer lies, where that is in the parameter region: replicated, or in common.
    pub(crate) fn flat(&self, unit: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        (placement.start, placement.padded)
    }

    /// Where the shard of a unit's parameters of the rank at `zero` lies in the parameter region of that rank.
    pub(crate) fn shard(&self, unit: usize, zero: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        let len = placement.shard(&self.plan.config);
        let packed = self.plan.config.shards_parameters() && !self.is_common();
        let start = if packed { placement.start / self.plan.config.mesh.zero } else { placement.start + zero * len };
        (start, len)
    }

    /// Where a unit lies that layers compute on in a slot.
    pub(crate) fn slot(&self, unit: usize, slot: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        let start =
            if self.plan.config.holds_parameters() { placement.start } else { slot * self.memory().gathered_slot };
        (start, placement.padded)
    }

    /// Where the shard of a unit's summed gradients of the rank at `zero` lies, in that rank's region.
    pub(crate) fn reduced(&self, unit: usize, zero: usize) -> (Kind, usize, usize) {
        let placement = &self.plan.placements[unit];
        let len = placement.shard(&self.plan.config);
        if self.plan.config.reduces_in_place() {
            (Kind::Gradients, self.local_gradients(unit).0 + zero * len, len)
        } else {
            (Kind::Reduced, placement.start / self.plan.config.mesh.zero, len)
        }
    }

    /// Where this rank leaves its shard of a unit's gradients, summed over its replica: where sums lie, unless replicas
    /// have still to add to them.
    pub(crate) fn partial(&self, unit: usize) -> (Kind, usize, usize) {
        let config = &self.plan.config;
        let (kind, start, len) = self.reduced(unit, self.coordinates.zero);
        if config.mesh.replica == 1 || config.reduces_in_place() {
            return (kind, start, len);
        }
        let placement = &self.plan.placements[unit];
        let bucket = &self.plan.buckets[placement.bucket];
        (Kind::Partial, bucket.partial + (placement.start - bucket.start) / config.mesh.zero, len)
    }

    /// Where the part of a shard lies within it that the rank at `replica` sums: start and length.
    pub(crate) fn part(&self, unit: usize, replica: usize) -> (usize, usize) {
        let len = self.plan.placements[unit].part(&self.plan.config);
        (replica * len, len)
    }

    /// Where the local gradients of a unit lie in their region.
    pub(crate) fn local_gradients(&self, unit: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        let bucket = &self.plan.buckets[placement.bucket];
        (bucket.staging + placement.start - bucket.start, placement.padded)
    }
}
