//! Shared: the collectives of ranks that see one memory. Nothing is sent: a rank tells that its part is there, and who
//! needs it reads it where it lies. Sums run along the plan's tree over ranks, so they do not depend on timing.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::traffic::AGREED_VALUES;
use zero_plan::unit::ELEMENT_BYTES;
use zero_plan::{Kind, Traffic};

use super::control::Control;
use super::{Lost, Transport};
use crate::arena::Arena;
use crate::device::cpu::tree_sum;
use crate::device::{Cpu, Write};
use crate::view::View;

/// Elements that an in-place reduction sums at a time, beside the sources: half of a first-level cache.
const BLOCK: usize = 4096;

/// The collectives of one rank.
pub struct Shared<'p> {
    arena: Arc<Arena<'p>>,
    /// For each unit: the count of publications at which its newest shards are there, on every rank.
    versions: Vec<u32>,
    /// For each unit: the slot that holds it.
    slots: Vec<usize>,
    /// For each bucket: which reduction it was last offered in, if it was.
    offers: Vec<Option<u32>>,
    published: u32,
    offered: u32,
    rounds: u32,
    sent: Traffic,
}

impl<'p> Shared<'p> {
    /// The collectives of the rank that `arena` belongs to.
    pub(crate) fn new(arena: Arena<'p>) -> Self {
        let plan = arena.plan();
        Self {
            versions: vec![0; plan.units.len()],
            slots: vec![0; plan.units.len()],
            offers: vec![None; plan.buckets.len()],
            published: 0,
            offered: 0,
            rounds: 0,
            sent: Traffic::default(),
            arena: Arc::new(arena),
        }
    }

    fn rank(&self) -> usize {
        self.arena.rank()
    }

    fn ranks(&self) -> usize {
        self.arena.plan().config.ranks
    }

    fn control(&self, rank: usize) -> &Control {
        assert!(rank < self.ranks());
        // SAFETY: the arena's segment starts with one block for each rank, was zero at first, and is mapped as long as
        // the arena is, which the result borrows; the blocks are used nowhere else in another way.
        unsafe { Control::of(self.arena.control(), rank) }
    }

    fn own(&self) -> &Control {
        self.control(self.rank())
    }

    fn peers(&self) -> impl Iterator<Item = usize> {
        let own = self.rank();
        (0..self.ranks()).filter(move |&rank| rank != own)
    }

    /// Where a gather leaves a unit's flat buffer.
    fn full(&self, unit: usize) -> (Kind, usize, usize) {
        let plan = self.arena.plan();
        let (start, len) = self.arena.flat(unit);
        if plan.config.shards_parameters() && !self.arena.is_common() {
            (Kind::Gathered, self.slots[unit] * plan.memory.slot, len)
        } else {
            (Kind::Parameters, start, len)
        }
    }

    /// Copies `len` elements of a rank's region to one of this rank. Gives the bytes that came from a peer; as all ranks
    /// do the same, this rank sends as many.
    ///
    /// # Safety
    /// Nobody writes the source and nobody else uses the destination during the call.
    unsafe fn fetch(&self, from: (usize, Kind, usize), to: (Kind, usize), len: usize) -> usize {
        let source = self.arena.address(from.0, from.1, from.2, len);
        let destination = self.arena.address(self.rank(), to.0, to.1, len);
        // SAFETY: both lie in the arena, by `address`; they are regions of different ranks or different regions, so they
        // do not overlap; the caller promises that nobody interferes.
        unsafe { core::ptr::copy_nonoverlapping(source, destination, len) };
        if from.0 == self.rank() { 0 } else { len * ELEMENT_BYTES }
    }

    /// Sums this rank's shard of a unit over all ranks. Gives the bytes that came from peers.
    ///
    /// # Safety
    /// All ranks have offered the unit's bucket, so that nobody writes the local gradients read here.
    unsafe fn sum_shard(&self, unit: usize, write: Write) -> usize {
        let (to, to_start, len) = self.arena.reduced(unit);
        let from_start = self.arena.local_gradients(unit).0 + self.rank() * len;
        let in_place = to == Kind::Gradients;
        let mut scratch = [0.0; BLOCK];
        let mut bytes = 0;
        for start in (0..len).step_by(BLOCK) {
            let block = BLOCK.min(len - start);
            let source = |rank: usize| {
                let address = self.arena.address(rank, Kind::Gradients, from_start + start, block);
                // SAFETY: nobody writes local gradients between offer and claim, by the caller's promise; this rank's own
                // slice is written below, after the last use of this borrow.
                unsafe { core::slice::from_raw_parts(address.cast_const(), block) }
            };
            let destination = self.arena.address(self.rank(), to, to_start + start, block);
            if in_place {
                tree_sum(&mut scratch[..block], source, self.ranks(), Write::Set);
                // SAFETY: the sources are not used any more. Peers do not read this slice of this rank: it is the shard
                // that only this rank sums.
                unsafe { core::ptr::copy_nonoverlapping(scratch.as_ptr(), destination, block) };
            } else {
                // SAFETY: reduced gradients are a region of their own, which peers read only after a settle.
                let destination = unsafe { core::slice::from_raw_parts_mut(destination, block) };
                tree_sum(destination, source, self.ranks(), write);
            }
            bytes += block * ELEMENT_BYTES * self.peers().count();
        }
        bytes
    }

    /// Which reduction a bucket was last offered in.
    fn offer(&self, bucket: usize) -> u32 {
        self.offers[bucket].expect("the schedule offers a bucket before it settles it")
    }

    fn units_of(&self, bucket: usize) -> impl Iterator<Item = usize> + use<'p> {
        let plan = self.arena.plan();
        let bucket = &plan.buckets[bucket];
        (bucket.first..=bucket.last).filter(|&unit| plan.placements[unit].padded > 0)
    }
}

// SAFETY: `wait` returns when every owner has published what this rank has, which owners overwrite only after an exchange;
// `claim` when every peer has settled the last offer out of the staging; `settle` and `spread` write regions of this rank
// that peers read only after a later signal of this rank; `exchange` waits for the signal of every rank.
unsafe impl<'p> Transport<'p> for Shared<'p> {
    fn arena(&self) -> &Arc<Arena<'p>> {
        &self.arena
    }

    fn publish(&mut self, unit: usize) {
        self.published = self.published.wrapping_add(1);
        self.versions[unit] = self.published;
        self.own().published.raise();
    }

    fn gather(&mut self, unit: usize, slot: usize) {
        // The shards lie where they are read: there is nothing to start.
        self.slots[unit] = slot;
    }

    fn wait(&mut self, unit: usize) -> Result<(), Lost> {
        // Every rank publishes its units in the same order, so the count that this rank had then is that of all.
        for peer in self.peers() {
            self.control(peer).published.wait(self.versions[unit], self.own())?;
        }
        let (to, start, _) = self.full(unit);
        for rank in 0..self.ranks() {
            let (shard, len) = self.arena.shard(unit, rank);
            self.sent.gather_bytes += if self.arena.is_common() {
                // It is read where it lies.
                if rank == self.rank() { 0 } else { len * ELEMENT_BYTES }
            } else if rank == self.rank() && to == Kind::Parameters {
                0
            } else {
                // SAFETY: the shard is published, and its owner writes it again only after an exchange that this rank
                // enters later; the destination is this rank's own, and no view of it is alive.
                unsafe { self.fetch((rank, Kind::Parameters, shard), (to, start + rank * len), len) }
            };
        }
        Ok(())
    }

    fn gathered(&self, unit: usize) -> View<'_, Cpu> {
        let (kind, start, len) = self.full(unit);
        // SAFETY: between wait and release nobody writes a gathered buffer: owners update their shards only after an
        // exchange that this rank enters after its last release, and a slot is filled again only after a release.
        unsafe { self.arena.view(kind, start, len) }
    }

    fn release(&mut self, unit: usize) {
        if cfg!(debug_assertions)
            && let (Kind::Gathered, start, len) = self.full(unit)
        {
            // A use after release then shows as a loss that is not finite.
            // SAFETY: the slot is this rank's own, and views of it ended with the call that they were made for.
            unsafe { self.arena.view_mut(Kind::Gathered, start, len) }.into_slice().fill(f32::NAN);
        }
    }

    fn claim(&mut self, bucket: usize) -> Result<(), Lost> {
        let plan = self.arena.plan();
        let overlaps = |other: usize| match (plan.buckets[bucket].slot, plan.buckets[other].slot) {
            (Some(a), Some(b)) => a == b,
            _ => bucket == other,
        };
        // The newest offer out of this staging; older ones have been settled before it.
        let offers = (0..self.offers.len()).filter(|&other| overlaps(other)).filter_map(|other| self.offers[other]);
        let Some(offer) = offers.max_by(|a, b| (a.wrapping_sub(*b) as i32).cmp(&0)) else {
            return Ok(());
        };
        for peer in self.peers() {
            self.control(peer).settled.wait(offer, self.own())?;
        }
        Ok(())
    }

    fn reduce(&mut self, bucket: usize) {
        self.offered = self.offered.wrapping_add(1);
        self.offers[bucket] = Some(self.offered);
        self.own().offered.raise();
    }

    fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        let offer = self.offer(bucket);
        for peer in self.peers() {
            self.control(peer).offered.wait(offer, self.own())?;
        }
        for unit in self.units_of(bucket) {
            if self.ranks() > 1 || !self.arena.plan().config.reduces_in_place() {
                // SAFETY: every rank has offered the bucket, and claims its staging again only after this rank's settle.
                self.sent.reduce_bytes += unsafe { self.sum_shard(unit, write) };
            }
        }
        self.own().settled.raise();
        Ok(())
    }

    fn spread(&mut self, bucket: usize) -> Result<(), Lost> {
        let offer = self.offer(bucket);
        for peer in self.peers() {
            self.control(peer).settled.wait(offer, self.own())?;
        }
        for unit in self.units_of(bucket) {
            let (kind, start, len) = self.arena.reduced(unit);
            let local = self.arena.local_gradients(unit).0;
            for rank in 0..self.ranks() {
                // In place, another rank's shard lies as far on in its gradients as it is to lie in this rank's.
                let from = if kind == Kind::Gradients { local + rank * len } else { start };
                if rank != self.rank() || kind != Kind::Gradients {
                    // SAFETY: the peer has settled the bucket and writes its sum again only in the next step, after an
                    // exchange that this rank enters later. Peers read only their own shards of this rank's gradients,
                    // and they have: the bucket is settled on every rank.
                    let bytes = unsafe { self.fetch((rank, kind, from), (Kind::Gradients, local + rank * len), len) };
                    self.sent.spread_bytes += bytes;
                }
            }
        }
        Ok(())
    }

    fn exchange(&mut self, mine: [f64; 2], all: &mut [[f64; 2]]) -> Result<(), Lost> {
        self.rounds = self.rounds.wrapping_add(1);
        // A rank leaves numbers for the round after the next only when all have entered the next, and so have read these.
        self.own().put(self.rounds, mine);
        self.own().entered.raise();
        for (rank, numbers) in all.iter_mut().enumerate() {
            self.control(rank).entered.wait(self.rounds, self.own())?;
            *numbers = self.control(rank).get(self.rounds);
        }
        self.sent.agree_bytes += AGREED_VALUES * size_of::<f64>() * (self.ranks() - 1);
        Ok(())
    }

    fn sent(&self) -> Traffic {
        self.sent
    }
}
