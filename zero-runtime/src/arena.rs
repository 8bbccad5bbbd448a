//! Arena: the memory of one rank, each region at a constant offset, and the addresses of what peers share. Hands out
//! pointers within bounds; who may use them when is the schedule's business.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::unit::ELEMENT_BYTES;
use zero_plan::{Home, Kind, Plan};

use crate::device::Cpu;
use crate::launch::{LaunchError, Segment};
use crate::transport::control::CONTROL_BYTES;
use crate::view::{View, ViewMut};

/// Every part of the shared segment starts on a page, so that ranks never write to one page.
const PAGE_BYTES: usize = 4096;

/// The memory of one rank under a plan.
pub struct Arena<'p> {
    plan: &'p Plan<'p>,
    rank: usize,
    private: Segment,
    segment: Arc<Segment>,
}

/// Bytes of the segment that all ranks of a plan share: a control block for each rank, what they hold in common, and
/// each rank's shared part.
pub(crate) fn segment_bytes(plan: &Plan) -> usize {
    shared_start(plan, plan.config.ranks)
}

/// Bytes that all ranks of a plan take together on one host: what they share, and what is private to each.
pub(crate) fn job_bytes(plan: &Plan) -> usize {
    segment_bytes(plan) + plan.config.ranks * plan.memory.private * ELEMENT_BYTES
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

fn common_start(plan: &Plan) -> usize {
    pages(plan.config.ranks * CONTROL_BYTES)
}

fn shared_start(plan: &Plan, rank: usize) -> usize {
    let common = pages(plan.memory.common * ELEMENT_BYTES);
    common_start(plan) + common + rank * pages(plan.memory.shared * ELEMENT_BYTES)
}

impl<'p> Arena<'p> {
    /// Allocates what is private to `rank`; `segment` has [`segment_bytes`] bytes and is the same on all ranks.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the host has not that much memory to give.
    pub(crate) fn new(plan: &'p Plan<'p>, rank: usize, segment: Arc<Segment>) -> Result<Self, LaunchError> {
        assert!(rank < plan.config.ranks, "rank {rank} of {}", plan.config.ranks);
        assert_eq!(segment.len(), segment_bytes(plan), "the shared segment has another size than planned");
        let private = Segment::private((plan.memory.private * ELEMENT_BYTES).max(PAGE_BYTES))?;
        Ok(Self { plan, rank, private, segment })
    }

    /// The plan that it was laid out by.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// The rank that it belongs to.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes of this rank's regions, as allocated: its private memory, its shared part and its share of the common part.
    pub fn bytes(&self) -> usize {
        let elements = self.plan.memory.shared + self.plan.memory.common / self.plan.config.ranks;
        let private = if self.plan.memory.private == 0 { 0 } else { self.private.len() };
        private + elements * ELEMENT_BYTES
    }

    /// First byte of the segment: the control blocks.
    pub(crate) fn control(&self) -> *mut u8 {
        self.segment.ptr()
    }

    /// Address of `len` elements of region `kind` of `rank`, from element `at` of it. What ranks hold in common is one
    /// region, at the same address for every rank.
    pub(crate) fn address(&self, rank: usize, kind: Kind, at: usize, len: usize) -> *mut f32 {
        let region = self.plan.memory.region(kind);
        let ranks = self.plan.config.ranks;
        let (mapping, start, elements) = match region.home {
            Home::Private => {
                assert_eq!(rank, self.rank, "{} of rank {rank} is private to it", kind.name());
                (&self.private, 0, region.elements)
            }
            Home::Shared => (&*self.segment, shared_start(self.plan, rank), region.elements),
            Home::Common => (&*self.segment, common_start(self.plan), region.elements * ranks),
        };
        assert!(at + len <= elements, "{}: {at} + {len} of {elements} elements", kind.name());
        let first_byte = start + (region.offset + at) * ELEMENT_BYTES;
        assert!(
            rank < ranks && first_byte + len * ELEMENT_BYTES <= mapping.len(),
            "{} beyond its mapping",
            kind.name()
        );
        // SAFETY: within the mapping, by the assertion; a multiple of an element's size, as every term is.
        unsafe { mapping.ptr().add(first_byte).cast::<f32>() }
    }

    /// This rank's elements of a region, to read.
    ///
    /// # Safety
    /// Nobody writes them while the view lives.
    pub(crate) unsafe fn view(&self, kind: Kind, at: usize, len: usize) -> View<'_, Cpu> {
        // SAFETY: mapped memory starts zeroed, so all of it is initialised; the caller promises the rest.
        unsafe { View::from_raw(self.address(self.rank, kind, at, len), len) }
    }

    /// This rank's elements of a region, to write.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the view lives.
    pub(crate) unsafe fn view_mut(&self, kind: Kind, at: usize, len: usize) -> ViewMut<'_, Cpu> {
        // SAFETY: mapped memory starts zeroed, so all of it is initialised; the caller promises the rest.
        unsafe { ViewMut::from_raw(self.address(self.rank, kind, at, len), len) }
    }

    /// Whether the shards of all ranks lie contiguous, so that a gathered unit is read where its owners write it.
    pub(crate) fn is_common(&self) -> bool {
        matches!(self.plan.memory.region(Kind::Parameters).home, Home::Common)
    }

    /// Where a unit's whole flat buffer lies, where that is in the parameter region: replicated, or in common.
    pub(crate) fn flat(&self, unit: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        (placement.start, placement.padded)
    }

    /// Where `rank`'s shard of a unit's parameters lies in the parameter region of that rank.
    pub(crate) fn shard(&self, unit: usize, rank: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        let ranks = self.plan.config.ranks;
        let len = placement.shard(ranks);
        let packed = self.plan.config.shards_parameters() && !self.is_common();
        let start = if packed { placement.start / ranks } else { placement.start + rank * len };
        (start, len)
    }

    /// Where this rank's shard of a unit's summed gradients lies.
    pub(crate) fn reduced(&self, unit: usize) -> (Kind, usize, usize) {
        let placement = &self.plan.placements[unit];
        let ranks = self.plan.config.ranks;
        let len = placement.shard(ranks);
        if self.plan.config.reduces_in_place() {
            (Kind::Gradients, self.local_gradients(unit).0 + self.rank * len, len)
        } else {
            (Kind::Reduced, placement.start / ranks, len)
        }
    }

    /// Where the local gradients of a unit lie in their region.
    pub(crate) fn local_gradients(&self, unit: usize) -> (usize, usize) {
        let placement = &self.plan.placements[unit];
        let bucket = &self.plan.buckets[placement.bucket];
        (bucket.staging + placement.start - bucket.start, placement.padded)
    }
}
