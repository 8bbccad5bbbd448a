//! Reduction: sums of gradients along the plan's tree, first over the ranks along `zero`, then over replicas. Each rank
//! sums what it owns, reading what its peers have where it lies, so results do not depend on timing.
#![allow(unsafe_code)]

use zero_plan::config::Width;
use zero_plan::layout::STAGING_SLOTS;
use zero_plan::{Axis, Bucket, Kind};

use super::Lost;
use super::shared::{Place, Shared};
use crate::device::cpu::tree_sum;
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

    /// The staging of a bucket: a slot that buckets take turns with, or a place of its own.
    fn staging_of(&self, bucket: usize) -> usize {
        self.bucket(bucket).slot.unwrap_or(STAGING_SLOTS + bucket)
    }

    /// Tells that the local gradients of a bucket are there.
    pub(super) fn offer(&mut self, bucket: usize) {
        self.sums.offered = self.sums.offered.wrapping_add(1);
        self.sums.offers[bucket] = Some(self.sums.offered);
        let staging = self.staging_of(bucket);
        self.sums.staged[staging] = Some(self.sums.offered);
        self.own().offered.raise();
    }

    /// Waits until peers have read what lies in the staging of a bucket.
    pub(super) fn wait_for_staging(&self, bucket: usize) -> Result<(), Lost> {
        // Older offers out of this staging have been settled before the newest.
        let Some(offer) = self.sums.staged[self.staging_of(bucket)] else {
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
                self.moved.in_place.reduce_bytes +=
                    unsafe { self.sum(&source, config.mesh.zero, (to, to_start), len, write) };
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
            self.moved.in_place.replica_reduce_bytes +=
                unsafe { self.sum(&source, replicas, (to, to_start + part), len, write) };
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
                self.moved.copied.replica_spread_bytes += unsafe { self.fetch(from, (kind, start + part), len) };
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
                    self.moved.copied.spread_bytes +=
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
        // SAFETY: by the caller's promise.
        unsafe {
            match self.arena.plan().config.precision.reduce {
                Width::F32 => self.sum_as::<f32>(source, count, to, len, write),
                Width::BF16 => self.sum_as::<bf16>(source, count, to, len, write),
            }
        }
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
    ) -> usize {
        let own = Place { rank: self.rank(), kind: to.0, at: to.1 };
        let read = |place: Place, len: usize| {
            let start = self.arena.address::<E>(place.rank, place.kind, place.at, len).cast_const();
            // SAFETY: nobody writes it, by the caller's promise, nor does this rank while the borrow is in use: see below.
            unsafe { core::slice::from_raw_parts(start, len) }
        };
        // SAFETY: nobody else uses it, by the caller's promise, and this rank no source that lies there: see below.
        let fill = |at: usize, len: usize| unsafe {
            core::slice::from_raw_parts_mut(self.arena.address::<E>(own.rank, own.kind, own.at + at, len), len)
        };
        let from_peer =
            |place: Place, len: usize| if place.rank == own.rank { 0 } else { size_of_val(read(place, len)) };
        let mut from_peers = 0;
        // Stretches of different ranks or units are apart, so the destination is one of the sources or apart from all.
        match (0..count).find(|&i| source(i) == own) {
            None => {
                tree_sum(fill(0, len), |i| read(source(i), len), count, write);
                from_peers += (0..count).map(|i| from_peer(source(i), len)).sum::<usize>();
            }
            // The other of two is added to it: two summands have no order.
            Some(i) if count == 2 && write == Write::Set => {
                tree_sum(fill(0, len), |_| read(source(1 - i), len), 1, Write::Add);
                from_peers += from_peer(source(1 - i), len);
            }
            Some(_) => {
                let mut scratch = [0.0; BLOCK];
                for start in (0..len).step_by(BLOCK) {
                    let block = BLOCK.min(len - start);
                    let sum = &mut scratch[..block];
                    let place = |i: usize| {
                        let Place { rank, kind, at } = source(i);
                        Place { rank, kind, at: at + start }
                    };
                    tree_sum(sum, |i| read(place(i), block), count, Write::Set);
                    from_peers += (0..count).map(|i| from_peer(place(i), block)).sum::<usize>();
                    // The sources are not used any more.
                    tree_sum(fill(start, block), |_| &*sum, 1, write);
                }
            }
        }
        from_peers
    }
}
