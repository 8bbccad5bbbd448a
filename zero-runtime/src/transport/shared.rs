//! Shared: the communication of ranks that see one memory. Nothing is sent: a rank tells how far it is, by counts that only
//! grow, and whoever needs what it has reads that where it lies.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zero_plan::layout::{OUTGOING_SLOTS, STAGING_SLOTS};
use zero_plan::{Axis, Coordinates, Moved, Op, Parcel, Place, Position};

use super::control::{Control, PATIENCE, Signal, Spins, Waiter, sleeps_of};
use super::{Lost, TIMEOUT, Transport};
use crate::arena::Arena;
use crate::device::{Cpu, Device};
use crate::view::{View, ViewMut};

/// The communication of one rank.
pub struct Shared<'p, D: Device = Cpu> {
    pub(super) arena: Arc<Arena<'p, D>>,
    /// For each unit: the count of publications at which its newest shards are there, on every rank along `zero`.
    versions: Vec<u32>,
    published: u32,
    sums: Sums,
    parcels: [Parcels; Parcel::ALL.len()],
    rounds: u32,
    /// Numbers of this rank on their way to where others read them.
    mine: Vec<f64>,
    /// How waits begin.
    spins: Spins,
    /// Sleeps before a wait is given up.
    pub(super) sleeps_max: u32,
    moved: Moved,
}

/// How far the sums of gradients are.
#[derive(Default)]
struct Sums {
    /// For each bucket: which reduction it was last offered in, if it was.
    offers: Vec<Option<u32>>,
    /// For each slot for staging, and then for each bucket that has a place of its own: which reduction was last offered
    /// out of it, if one was.
    staged: Vec<Option<u32>>,
    /// For each bucket: which settle was its last.
    settles: Vec<u32>,
    /// For each slot for partial sums: which settle filled it last, if one did.
    partials: [Option<u32>; STAGING_SLOTS],
    offered: u32,
    settled: u32,
    joined: u32,
    whole: u32,
}

/// How far the parcels of a kind are.
#[derive(Clone, Copy, Default)]
struct Parcels {
    sent: u32,
    taken: u32,
    /// For each slot that they leave from: which of them lay there last.
    left: [u32; OUTGOING_SLOTS],
}

impl<'p, D: Device> Shared<'p, D> {
    /// The communication of the rank that `arena` belongs to.
    pub(crate) fn new(arena: Arena<'p, D>) -> Self {
        let plan = arena.plan();
        let buckets = plan.buckets.len();
        arena.control(arena.rank()).tell_pid();
        Self {
            versions: vec![0; plan.units.len()],
            published: 0,
            sums: Sums {
                offers: vec![None; buckets],
                staged: vec![None; STAGING_SLOTS + buckets],
                settles: vec![0; buckets],
                ..Sums::default()
            },
            parcels: Default::default(),
            rounds: 0,
            mine: vec![0.0; plan.agreed_values()],
            spins: Spins::of(plan.config.mesh.ranks()),
            sleeps_max: sleeps_of(TIMEOUT),
            moved: Moved::default(),
            arena: Arc::new(arena),
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.arena.rank()
    }

    pub(super) fn control(&self, rank: usize) -> &Control {
        self.arena.control(rank)
    }

    pub(super) fn own(&self) -> &Control {
        self.control(self.rank())
    }

    /// Waits until a signal of every other rank along an axis has reached `count`.
    fn await_peers(&self, axis: Axis, signal: fn(&Control) -> &Signal, count: u32) -> Result<(), Lost> {
        let peers = (0..self.arena.plan().config.mesh.len(axis)).map(|index| self.arena.along(axis, index));
        peers.filter(|&peer| peer != self.rank()).try_for_each(|peer| self.await_signal(peer, signal, count))
    }

    /// Waits until a signal of `rank` has reached `count`.
    fn await_signal(&self, rank: usize, signal: impl Fn(&Control) -> &Signal, count: u32) -> Result<(), Lost> {
        let (own, other) = (self.own(), self.control(rank));
        let (notice, give_up) = (|periods| self.still_waits_for(rank, periods), || self.gives_up(rank));
        let (spins, patience, sleeps_max) = (self.spins, Some(&PATIENCE), self.sleeps_max);
        let (notice, give_up) = (&notice, &give_up);
        signal(other).wait(count, &Waiter { own, rank, other, spins, patience, notice, sleeps_max, give_up })
    }

    /// This rank's shard of a unit is new: peers may gather it.
    fn publish(&mut self, unit: usize) {
        if self.arena.plan().config.shards_optimizer() {
            self.published = self.published.wrapping_add(1);
            self.versions[unit] = self.published;
            self.own().published.raise();
        }
    }

    /// The staging of a bucket: a slot that buckets take turns with, or a place of its own.
    fn staging_of(&self, bucket: usize) -> usize {
        self.arena.plan().buckets[bucket].slot.unwrap_or(STAGING_SLOTS + bucket)
    }

    /// Tells that the local gradients of a bucket are there.
    fn offer(&mut self, bucket: usize) {
        self.sums.offered = self.sums.offered.wrapping_add(1);
        self.sums.offers[bucket] = Some(self.sums.offered);
        let staging = self.staging_of(bucket);
        self.sums.staged[staging] = Some(self.sums.offered);
        self.own().offered.raise();
    }

    /// Waits until peers have read what lies in the staging of a bucket.
    fn await_staging(&self, bucket: usize) -> Result<(), Lost> {
        // Older offers out of this staging have been settled before the newest.
        let newest = self.sums.staged[self.staging_of(bucket)];
        newest.map_or(Ok(()), |offer| self.await_peers(Axis::Zero, |peer| &peer.settled, offer))
    }

    /// Waits until the local gradients of a bucket are there on all ranks along `zero`, and until other replicas have read
    /// what lies where its sum is to go.
    fn await_offers(&mut self, bucket: usize) -> Result<(), Lost> {
        let offer = self.sums.offers[bucket].expect("the schedule offers a bucket before it settles it");
        self.await_peers(Axis::Zero, |peer| &peer.offered, offer)?;
        self.sums.settled = self.sums.settled.wrapping_add(1);
        self.sums.settles[bucket] = self.sums.settled;
        let plan = self.arena.plan();
        if plan.config.has_partials() {
            let slot = usize::from(plan.buckets[bucket].partial > 0);
            if let Some(settle) = self.sums.partials[slot].replace(self.sums.settled) {
                self.await_peers(Axis::Replica, |peer| &peer.combined, settle)?;
            }
        }
        Ok(())
    }

    /// Tells that what this rank has of a sum may be read by those along an axis, and waits for theirs.
    fn join(&mut self, axis: Axis) -> Result<(), Lost> {
        let (count, signal): (_, fn(&Control) -> &Signal) = match axis {
            Axis::Replica => (&mut self.sums.joined, |control| &control.joined),
            Axis::Zero => (&mut self.sums.whole, |control| &control.whole),
            Axis::Pipeline => unreachable!("the schedule check admits no spread along the pipeline"),
        };
        *count = count.wrapping_add(1);
        let count = *count;
        signal(self.own()).raise();
        self.await_peers(axis, signal, count)
    }

    /// The rank of another pipeline stage in line with this one.
    fn at_stage(&self, pipeline: usize) -> usize {
        let plan = self.arena.plan();
        plan.config.mesh.rank(Coordinates { pipeline, ..self.arena.coordinates() })
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

// SAFETY: the beginning of a wait returns when every owner has published what this rank has, which owners overwrite only
// after an exchange; that of a claim when every peer has settled the last offer out of the staging; that of a clear when the
// receiver has taken what lay in the slot; those of a settle, a combine, a spread and a receive when what they read is told to
// be there, and what they write are places of this rank that peers read only after a later signal of it; an exchange waits
// for the signal of every rank.
unsafe impl<'p, D: Device> Transport<'p, D> for Shared<'p, D> {
    fn arena(&self) -> &Arc<Arena<'p, D>> {
        &self.arena
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.sleeps_max = sleeps_of(timeout);
    }

    unsafe fn begin(&mut self, op: Op, position: &Position) -> Result<(), Lost> {
        match op {
            // The ranks along `zero` publish their units in the same order, so the count that this rank had is that of all.
            Op::Wait { unit } => self.await_peers(Axis::Zero, |peer| &peer.published, self.versions[unit]),
            Op::Claim { bucket } => self.await_staging(bucket),
            Op::Settle { bucket, .. } => self.await_offers(bucket),
            Op::Combine { bucket, .. } => {
                self.await_peers(Axis::Replica, |peer| &peer.settled, self.sums.settles[bucket])
            }
            Op::Spread { axis, .. } => self.join(axis),
            Op::Clear { parcel } => {
                let receiver =
                    self.at_stage(self.arena.plan().parcel_receiver(parcel, self.arena.coordinates().pipeline));
                let left = self.parcels[parcel as usize].left[position.outgoing(parcel)];
                self.await_signal(receiver, |receiver| &receiver.taken[parcel as usize], left)
            }
            Op::Receive { parcel, .. } => {
                let sender = self.at_stage(self.arena.plan().parcel_sender(parcel, self.arena.coordinates().pipeline));
                let taken = &mut self.parcels[parcel as usize].taken;
                *taken = taken.wrapping_add(1);
                let taken = *taken;
                self.await_signal(sender, |sender| &sender.sent[parcel as usize], taken)
            }
            _ => Ok(()),
        }
    }

    unsafe fn end(&mut self, op: Op, position: &Position) {
        match op {
            Op::Update { unit } => self.publish(unit),
            Op::Reduce { bucket, .. } => self.offer(bucket),
            Op::Settle { .. } => self.own().settled.raise(),
            Op::Combine { .. } => self.own().combined.raise(),
            Op::Send { parcel, .. } => {
                let parcels = &mut self.parcels[parcel as usize];
                parcels.sent = parcels.sent.wrapping_add(1);
                parcels.left[position.outgoing(parcel)] = parcels.sent;
                self.own().sent[parcel as usize].raise();
            }
            Op::Receive { parcel, unit, .. } => {
                self.own().taken[parcel as usize].raise();
                if parcel == Parcel::TiedParameters {
                    self.publish(unit);
                }
            }
            _ => {}
        }
    }

    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        // SAFETY: the op has begun, so nobody writes what it reads.
        unsafe { self.arena.bytes_of(rank, place) }
    }

    unsafe fn exchange(
        &mut self,
        device: &D,
        call: u64,
        mine: View<D, f64>,
        mut all: ViewMut<D, f64>,
    ) -> Result<(), Lost> {
        let len = mine.len();
        device.read(mine, &mut self.mine[..len]);
        self.rounds = self.rounds.wrapping_add(1);
        // A rank leaves numbers for the round after the next only when all have entered the next, and so have read these.
        let (reason, numbers) = self.numbers(self.rank(), len);
        reason.store(call, Ordering::Relaxed);
        for (to, number) in numbers.iter().zip(&self.mine) {
            to.store(number.to_bits(), Ordering::Relaxed);
        }
        self.own().entered.raise();
        let mut others = None;
        for rank in 0..self.arena.plan().config.mesh.ranks() {
            self.await_signal(rank, |peer| &peer.entered, self.rounds)?;
            let (reason, numbers) = self.numbers(rank, len);
            if reason.load(Ordering::Relaxed) != call {
                others.get_or_insert(rank);
            }
            device.stage(all.reborrow().part(rank * len, len), |to| {
                for (number, from) in to.iter_mut().zip(numbers) {
                    *number = f64::from_bits(from.load(Ordering::Relaxed));
                }
            });
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
