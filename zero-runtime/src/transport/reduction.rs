//! Reduction: sums of gradients along the plan's tree, first over the ranks along `zero`, then over replicas. Each rank
//! sums what it owns, reading what its peers have where it lies, so results do not depend on timing.
#![allow(unsafe_code)]

use zero_plan::config::Width;
use zero_plan::{Axis, Bucket, Kind};

use super::Lost;
use super::shared::{Place, Shared};
use crate::device::cpu::{convert, tree_sum};
use crate::device::{Element, Write, bf16};

/// Elements that an in-place reduction sums at a time, beside the sources: half of a first-level cache.
const BLOCK: usize = 4096;

impl<'p> Shared<'p> {
    fn bucket(&self, bucket: usize) -> &'p Bucket {
        &self.arena.plan().buckets[bucket]
    }

    fn units_of(&self, bucket: usize) -> impl Iterator<Item = usize> + use<'p> {
        let plan = self.arena.plan();
        let bucket = self.bucket(bucket);
        (bucket.first..=bucket.last).filter(|&unit| plan.placements[unit].padded > 0)
    }

    /// Waits until peers have read what lies in the staging of a bucket.
    pub(super) fn wait_for_staging(&mut self, bucket: usize) -> Result<(), Lost> {
        let plan = self.arena.plan();
        let overlaps = |other: usize| {
            let (one, other) = (self.bucket(bucket), &plan.buckets[other]);
            one.staging < other.staging + other.elements && other.staging < one.staging + one.elements
        };
        // The newest offer out of this staging; older ones have been settled before it. A rank offers buckets of its own
        // pipeline stage only.
        let offers = &self.sums.offers;
        let offers = (0..offers.len()).filter(|&other| overlaps(other)).filter_map(|other| offers[other]);
        let Some(offer) = offers.max_by(|a, b| (a.wrapping_sub(*b) as i32).cmp(&0)) else {
            return Ok(());
        };
        self.await_peers(Axis::Zero, |peer| &peer.settled, offer)
    }

    /// Sums this rank's shards of a bucket along `zero`.
    pub(super) fn sum_shards(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        let config = &self.arena.plan().config;
        let offer = self.sums.offers[bucket].expect("the schedule offers a bucket before it settles it");
        self.await_peers(Axis::Zero, |peer| &peer.offered, offer)?;
        let has_partials = config.mesh.replica > 1 && !config.reduces_in_place();
        self.sums.settled = self.sums.settled.wrapping_add(1);
        self.sums.settles[bucket] = self.sums.settled;
        if has_partials {
            let slot = usize::from(self.bucket(bucket).partial > 0);
            if let Some(settle) = self.sums.partials[slot].replace(self.sums.settled) {
                self.await_peers(Axis::Replica, |peer| &peer.combined, settle)?;
            }
        }
        let write = if has_partials { Write::Set } else { write };
        for unit in self.units_of(bucket) {
            let (to, to_start, len) = self.arena.partial(unit);
            let from = self.arena.local_gradients(unit).0 + self.at().zero * len;
            let source = |zero: usize| Place { rank: self.along(Axis::Zero, zero), kind: Kind::Gradients, at: from };
            if config.mesh.zero > 1 || to != Kind::Gradients {
                // SAFETY: every rank along `zero` has offered the bucket, and claims its staging again only after this
                // rank's settle; replicas have combined what lay in the partial slot. In place, a rank writes its own
                // shard only, which no peer along `zero` reads before it is whole, nor a replica before this settle.
                self.sent.reduce_bytes += unsafe { self.sum(&source, config.mesh.zero, (to, to_start), len, write) };
            }
        }
        self.own().settled.raise();
        Ok(())
    }

    /// Sums this rank's parts of a bucket along `replica`.
    pub(super) fn sum_parts(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        let replicas = self.arena.plan().config.mesh.replica;
        self.await_peers(Axis::Replica, |peer| &peer.settled, self.sums.settles[bucket])?;
        for unit in self.units_of(bucket) {
            let (from, from_start, _) = self.arena.partial(unit);
            let (to, to_start, _) = self.arena.reduced(unit, self.at().zero);
            let (part, len) = self.arena.part(unit, self.at().replica);
            let source =
                |replica: usize| Place { rank: self.along(Axis::Replica, replica), kind: from, at: from_start + part };
            // SAFETY: every replica has settled the bucket, and fills its partial slot again only after this rank has
            // combined it. In place, each rank writes its own part only, which no peer reads.
            self.sent.replica_reduce_bytes += unsafe { self.sum(&source, replicas, (to, to_start + part), len, write) };
        }
        self.own().combined.raise();
        Ok(())
    }

    /// Gathers the parts of this rank's shards of a bucket from the replicas that summed them.
    pub(super) fn spread_parts(&mut self, bucket: usize) -> Result<(), Lost> {
        self.sums.joined = self.sums.joined.wrapping_add(1);
        self.own().joined.raise();
        self.await_peers(Axis::Replica, |peer| &peer.joined, self.sums.joined)?;
        for unit in self.units_of(bucket) {
            let (kind, start, _) = self.arena.reduced(unit, self.at().zero);
            let own = self.at().replica;
            for replica in (0..self.arena.plan().config.mesh.replica).filter(|&other| other != own) {
                let (part, len) = self.arena.part(unit, replica);
                let from = Place { rank: self.along(Axis::Replica, replica), kind, at: start + part };
                // SAFETY: the peer's part is whole, and is written again only in the next step, after an exchange that
                // this rank enters later. The peer has read this place of this rank, if at all, in its combine, before it
                // joined; who reads it next waits until this rank tells that its shards are whole.
                self.sent.replica_spread_bytes += unsafe { self.fetch(from, (kind, start + part), len) };
            }
        }
        Ok(())
    }

    /// Gathers the shards of a bucket's sum into this rank's own gradients.
    pub(super) fn spread_shards(&mut self, bucket: usize) -> Result<(), Lost> {
        self.sums.whole = self.sums.whole.wrapping_add(1);
        self.own().whole.raise();
        self.await_peers(Axis::Zero, |peer| &peer.whole, self.sums.whole)?;
        for unit in self.units_of(bucket) {
            let local = self.arena.local_gradients(unit).0;
            for zero in 0..self.arena.plan().config.mesh.zero {
                let rank = self.along(Axis::Zero, zero);
                let (kind, at, len) = self.arena.reduced(unit, zero);
                if rank != self.rank() || kind != Kind::Gradients {
                    // SAFETY: the peer's shard is whole, and is written again only in the next step, after an exchange
                    // that this rank enters later. Peers have settled the bucket, so of these gradients they read at most
                    // this rank's own shard, and that only in place, where it is not written.
                    self.sent.spread_bytes +=
                        unsafe { self.fetch(Place { rank, kind, at }, (Kind::Gradients, local + zero * len), len) };
                }
            }
        }
        Ok(())
    }

    /// Sums `len` elements of `count` sources to a place of this rank, all in the type that gradients are held in. Gives
    /// the bytes that came from peers.
    ///
    /// # Safety
    /// Nobody writes the sources during the call, and nobody else uses the destination.
    pub(super) unsafe fn sum(
        &self,
        source: &dyn Fn(usize) -> Place,
        count: usize,
        to: (Kind, usize),
        len: usize,
        write: Write,
    ) -> usize {
        let width = self.arena.plan().config.precision.reduce;
        // SAFETY: by the caller's promise.
        unsafe {
            match width {
                Width::F32 => self.sum_as::<f32>(source, count, to, len, write),
                Width::BF16 => self.sum_as::<bf16>(source, count, to, len, write),
            }
        }
        len * width.bytes() * (count - 1)
    }

    /// # Safety
    /// As for [`Self::sum`].
    unsafe fn sum_as<E: Element>(
        &self,
        source: &dyn Fn(usize) -> Place,
        count: usize,
        to: (Kind, usize),
        len: usize,
        write: Write,
    ) {
        let mut scratch = [0.0; BLOCK];
        for start in (0..len).step_by(BLOCK) {
            let block = BLOCK.min(len - start);
            let source = |i: usize| {
                let Place { rank, kind, at } = source(i);
                let address = self.arena.address::<E>(rank, kind, at + start, block);
                // SAFETY: nobody writes it, by the caller's promise; this rank's own slice, where it is the destination,
                // is written below, after the last use of this borrow.
                unsafe { core::slice::from_raw_parts(address.cast_const(), block) }
            };
            let destination = self.arena.address::<E>(self.rank(), to.0, to.1 + start, block);
            if to.0 == Kind::Gradients {
                tree_sum(&mut scratch[..block], source, count, Write::Set);
                // SAFETY: the sources are not used any more, and peers do not read what only this rank sums.
                let destination = unsafe { core::slice::from_raw_parts_mut(destination, block) };
                match write {
                    Write::Set => convert(destination, &scratch[..block]),
                    Write::Add => tree_sum(destination, |_| &scratch[..block], 1, write),
                }
            } else {
                // SAFETY: no source lies there: it is in another region, or of another unit. Peers read it only after a
                // later signal.
                let destination = unsafe { core::slice::from_raw_parts_mut(destination, block) };
                tree_sum(destination, source, count, write);
            }
        }
    }
}
