//! Shared: the communication of ranks that see one memory. Nothing is sent: a rank tells that its part is there, and whoever
//! needs it reads it where it lies, or copies it. Both are counted there, by the lengths of what was read and copied. Parameters are here; sums are in `reduction`, what crosses to other pipeline stages in
//! `parcels`.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zero_plan::config::Width;
use zero_plan::layout::STAGING_SLOTS;
use zero_plan::{Axis, Coordinates, Kind, Moved, Parcel};

use super::control::{Control, PATIENCE, Signal, Spins, Waiter};
use super::{Lost, Transport};
use crate::arena::Arena;
use crate::device::cpu::convert;
use crate::device::{Cpu, Element, Write, bf16};
use crate::view::View;

/// The communication of one rank.
pub struct Shared<'p> {
    pub(super) arena: Arc<Arena<'p>>,
    /// For each unit: the count of publications at which its newest shards are there, on every rank along `zero`.
    versions: Vec<u32>,
    /// For each unit: the slot that holds it.
    slots: Vec<usize>,
    pub(super) sums: Sums,
    /// Parcels of each kind sent and received so far.
    pub(super) parcels_sent: [u32; Parcel::ALL.len()],
    pub(super) parcels_taken: [u32; Parcel::ALL.len()],
    published: u32,
    rounds: u32,
    /// How waits begin.
    spins: Spins,
    pub(super) moved: Moved,
}

/// How far the sums of gradients are.
#[derive(Default)]
pub(super) struct Sums {
    /// For each bucket: which reduction it was last offered in, if it was.
    pub offers: Vec<Option<u32>>,
    /// For each slot for staging, and then for each bucket that has a place of its own: which reduction was last offered
    /// out of it, if one was.
    pub staged: Vec<Option<u32>>,
    /// For each bucket: which settle was its last.
    pub settles: Vec<u32>,
    /// For each slot for partial sums: which settle filled it last, if one did.
    pub partials: [Option<u32>; STAGING_SLOTS],
    pub offered: u32,
    pub settled: u32,
    pub joined: u32,
    pub whole: u32,
}

/// Elements of a region of a rank.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub rank: usize,
    pub kind: Kind,
    pub at: usize,
}

impl<'p> Shared<'p> {
    /// The communication of the rank that `arena` belongs to.
    pub(crate) fn new(arena: Arena<'p>) -> Self {
        let plan = arena.plan();
        let buckets = plan.buckets.len();
        Self {
            versions: vec![0; plan.units.len()],
            slots: vec![0; plan.units.len()],
            sums: Sums {
                offers: vec![None; buckets],
                staged: vec![None; STAGING_SLOTS + buckets],
                settles: vec![0; buckets],
                ..Sums::default()
            },
            parcels_sent: [0; Parcel::ALL.len()],
            parcels_taken: [0; Parcel::ALL.len()],
            published: 0,
            rounds: 0,
            spins: Spins::of(plan.config.mesh.ranks()),
            moved: Moved::default(),
            arena: Arc::new(arena),
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.arena.rank()
    }

    pub(super) fn at(&self) -> Coordinates {
        self.arena.coordinates()
    }

    pub(super) fn control(&self, rank: usize) -> &Control {
        self.arena.control(rank)
    }

    pub(super) fn own(&self) -> &Control {
        self.control(self.rank())
    }

    /// The rank at `index` along an axis, in line with this one.
    pub(super) fn along(&self, axis: Axis, index: usize) -> usize {
        let at = self.at();
        self.arena.rank_at(match axis {
            Axis::Zero => Coordinates { zero: index, ..at },
            Axis::Replica => Coordinates { replica: index, ..at },
            Axis::Pipeline => Coordinates { pipeline: index, ..at },
        })
    }

    /// The ranks along an axis in line with this one, but for itself.
    pub(super) fn peers(&self, axis: Axis) -> impl Iterator<Item = usize> {
        let own = self.rank();
        (0..self.arena.plan().config.mesh.len(axis))
            .map(move |index| self.along(axis, index))
            .filter(move |&rank| rank != own)
    }

    /// Waits until a signal of every peer along an axis has reached `count`.
    pub(super) fn await_peers(&self, axis: Axis, signal: fn(&Control) -> &Signal, count: u32) -> Result<(), Lost> {
        self.peers(axis).try_for_each(|peer| self.await_signal(peer, signal, count))
    }

    /// Waits until a signal of `rank` has reached `count`.
    pub(super) fn await_signal(
        &self,
        rank: usize,
        signal: impl Fn(&Control) -> &Signal,
        count: u32,
    ) -> Result<(), Lost> {
        let (other, notice) = (self.control(rank), |periods| self.still_waits_for(rank, periods));
        let (own, spins, patience) = (self.own(), self.spins, Some(&PATIENCE));
        signal(other).wait(count, &Waiter { own, rank, other, spins, patience, notice: &notice })
    }

    /// Copies `len` elements of a rank's region to one of this rank, and from one width to another. Gives the bytes that
    /// came from a peer.
    ///
    /// # Safety
    /// Nobody writes the source and nobody else uses the destination during the call.
    pub(super) unsafe fn fetch(&self, from: Place, to: (Kind, usize), len: usize) -> usize {
        let memory = self.arena.memory();
        let width = memory.region(from.kind).width;
        // SAFETY: by the caller's promise.
        unsafe {
            match (width, memory.region(to.0).width) {
                (Width::F32, Width::F32) => self.fetch_as::<f32, f32>(from, to, len),
                (Width::F32, Width::BF16) => self.fetch_as::<f32, bf16>(from, to, len),
                (Width::BF16, Width::F32) => self.fetch_as::<bf16, f32>(from, to, len),
                (Width::BF16, Width::BF16) => self.fetch_as::<bf16, bf16>(from, to, len),
            }
        }
    }

    /// # Safety
    /// As for [`Self::fetch`].
    unsafe fn fetch_as<From: Element, To: Element>(&self, from: Place, to: (Kind, usize), len: usize) -> usize {
        let source = self.arena.address::<From>(from.rank, from.kind, from.at, len);
        let destination = self.arena.address::<To>(self.rank(), to.0, to.1, len);
        // SAFETY: both lie in the arena, by `address`; they are regions of different ranks or different regions, so they
        // do not overlap; the caller promises that nobody interferes.
        let (source, destination) =
            unsafe { (core::slice::from_raw_parts(source, len), core::slice::from_raw_parts_mut(destination, len)) };
        convert(destination, source);
        if from.rank == self.rank() { 0 } else { size_of_val(source) }
    }

    /// Where layers find a unit whose parameters come and go.
    fn slot_of(&self, unit: usize) -> (Kind, usize, usize) {
        if self.arena.plan().config.uses_slots() {
            let (start, len) = self.arena.slot(unit, self.slots[unit]);
            (Kind::Gathered, start, len)
        } else {
            let (start, len) = self.arena.flat(unit);
            (Kind::Parameters, start, len)
        }
    }

    /// Where a rank keeps the reason for this exchange, and its numbers.
    fn numbers(&self, rank: usize, len: usize) -> (&AtomicU64, &[AtomicU64]) {
        assert!(len <= self.arena.plan().agreed_values(), "{len} numbers are more than ranks agree on");
        // SAFETY: room for the reason and as many numbers, aligned since it starts on a page and holds words of this size,
        // zero at first, and used as atomics only.
        let words = unsafe { core::slice::from_raw_parts(self.arena.numbers(rank, self.rounds).cast(), 1 + len) };
        let (reason, numbers) = words.split_first().expect("a reason at least");
        (reason, numbers)
    }
}

// SAFETY: `wait` returns when every owner has published what this rank has, which owners overwrite only after an exchange;
// `claim` when every peer has settled the last offer out of the staging; `clear` when the receiver has taken what lay in
// the slot; `settle`, `combine`, `spread` and `receive` write regions of this rank that peers read only after a later
// signal of this rank; `exchange` waits for the signal of every rank.
unsafe impl<'p> Transport<'p> for Shared<'p> {
    fn arena(&self) -> &Arc<Arena<'p>> {
        &self.arena
    }

    unsafe fn publish(&mut self, unit: usize) {
        self.published = self.published.wrapping_add(1);
        self.versions[unit] = self.published;
        self.own().published.raise();
    }

    unsafe fn gather(&mut self, unit: usize, slot: usize) {
        // The shards lie where they are read: there is nothing to start.
        self.slots[unit] = slot;
    }

    unsafe fn wait(&mut self, unit: usize) -> Result<(), Lost> {
        // The ranks along `zero` publish their units in the same order, so the count that this rank had is that of all.
        self.await_peers(Axis::Zero, |peer| &peer.published, self.versions[unit])?;
        let config = &self.arena.plan().config;
        let (to, start, _) = if config.shards_parameters() {
            self.slot_of(unit)
        } else {
            let (start, len) = self.arena.flat(unit);
            (Kind::Parameters, start, len)
        };
        for zero in 0..config.mesh.zero {
            let rank = self.along(Axis::Zero, zero);
            let (shard, len) = self.arena.shard(unit, zero);
            let is_own = rank == self.rank();
            if to == Kind::Parameters && (is_own || self.arena.is_common()) {
                // The view that `gathered` gives covers it.
                self.moved.in_place.gather_bytes += if is_own { 0 } else { len * config.precision.params.bytes() };
                continue;
            }
            let from = Place { rank, kind: Kind::Parameters, at: shard };
            // SAFETY: the shard is published, and its owner writes it again only after an exchange that this rank enters
            // later; the destination is this rank's own, and no view of it is alive.
            self.moved.copied.gather_bytes += unsafe { self.fetch(from, (to, start + zero * len), len) };
        }
        Ok(())
    }

    unsafe fn widen(&mut self, unit: usize, slot: usize) {
        self.slots[unit] = slot;
        let (from, len) = self.arena.flat(unit);
        let (to, start, _) = self.slot_of(unit);
        let from = Place { rank: self.rank(), kind: Kind::Parameters, at: from };
        // SAFETY: nobody writes this rank's replica between updates, and the slot is its own.
        unsafe { self.fetch(from, (to, start), len) };
    }

    unsafe fn gathered(&self, unit: usize) -> View<'_, Cpu> {
        let (kind, start, len) = self.slot_of(unit);
        // SAFETY: between wait and release nobody writes a gathered buffer: owners update their shards only after an
        // exchange that this rank enters after its last release, and a slot is filled again only after a release.
        unsafe { self.arena.view(kind, start, len) }
    }

    unsafe fn release(&mut self, unit: usize) {
        if cfg!(debug_assertions)
            && let (Kind::Gathered, start, len) = self.slot_of(unit)
        {
            // A use after release then shows as a loss that is not finite.
            // SAFETY: the slot is this rank's own, and views of it ended with the call that they were made for.
            unsafe { self.arena.view_mut::<f32>(Kind::Gathered, start, len) }.into_slice().fill(f32::NAN);
        }
    }

    unsafe fn claim(&mut self, bucket: usize) -> Result<(), Lost> {
        self.wait_for_staging(bucket)
    }

    unsafe fn reduce(&mut self, bucket: usize) {
        self.offer(bucket);
    }

    unsafe fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        self.sum_shards(bucket, write)
    }

    unsafe fn combine(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        self.sum_parts(bucket, write)
    }

    unsafe fn fold(&mut self, unit: usize) {
        self.fold_tied(unit);
    }

    unsafe fn spread(&mut self, bucket: usize, axis: Axis) -> Result<(), Lost> {
        match axis {
            Axis::Replica => self.spread_parts(bucket),
            Axis::Zero => self.spread_shards(bucket),
            Axis::Pipeline => unreachable!("the schedule check admits no spread along the pipeline"),
        }
    }

    unsafe fn clear(&mut self, parcel: Parcel) -> Result<(), Lost> {
        self.wait_for_outgoing(parcel)
    }

    fn outgoing_slot(&self, parcel: Parcel) -> usize {
        self.next_outgoing(parcel)
    }

    unsafe fn send(&mut self, parcel: Parcel, _: usize, _: usize) {
        self.offer_parcel(parcel);
    }

    unsafe fn receive(&mut self, parcel: Parcel, unit: usize, to: usize, len: usize) -> Result<(), Lost> {
        self.take_parcel(parcel, unit, to, len)
    }

    unsafe fn exchange(&mut self, call: u64, mine: &[f64], all: &mut [f64]) -> Result<(), Lost> {
        self.rounds = self.rounds.wrapping_add(1);
        // A rank leaves numbers for the round after the next only when all have entered the next, and so have read these.
        let (reason, numbers) = self.numbers(self.rank(), mine.len());
        reason.store(call, Ordering::Relaxed);
        for (to, number) in numbers.iter().zip(mine) {
            to.store(number.to_bits(), Ordering::Relaxed);
        }
        self.own().entered.raise();
        let mut others = None;
        for (rank, to) in all.chunks_exact_mut(mine.len()).enumerate() {
            self.await_signal(rank, |peer| &peer.entered, self.rounds)?;
            let (reason, numbers) = self.numbers(rank, mine.len());
            if reason.load(Ordering::Relaxed) != call {
                others.get_or_insert(rank);
            }
            for (number, from) in to.iter_mut().zip(numbers) {
                *number = f64::from_bits(from.load(Ordering::Relaxed));
            }
            self.moved.copied.agree_bytes += if rank == self.rank() { 0 } else { size_of_val(numbers) };
        }
        // Otherwise one of them might update what another is still reading.
        if let Some(other) = others {
            panic!(
                "rank {other} makes another call than rank {}: all ranks of a run must make the same calls of their \
                 engines, in the same order",
                self.rank()
            );
        }
        Ok(())
    }

    fn moved(&self) -> Moved {
        self.moved
    }
}
