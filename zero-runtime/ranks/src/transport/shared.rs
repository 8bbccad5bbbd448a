//! Shared: the communication of ranks that see one memory. Nothing is sent: a rank shows its progress by counts that only
//! grow, and other ranks read its data in place.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use zero_plan::place::{Place, Position};
use zero_plan::{Axis, Coordinates, Moved, OUTGOING_SLOTS, Op, Parcel, STAGING_SLOTS};

use super::carried::{CarriedWays, arrived};
use super::cluster::RemoteRanks;
use super::control::{Control, Count, PATIENCE, Spins, Waiter, sleeps_of};
use super::queued::QueuedWaits;
use super::watchdog::RankWatchdog;
use super::{ClockLook, Crossed, Lost, TIMEOUT, Transport};
use zero_core::arena::Arena;
use zero_core::device::Device;
use zero_core::view::{View, ViewMut};
use zero_core::watchdog::{Awaited, Watchdog};

/// The communication of one rank.
pub struct Shared<'p, D: Device> {
    pub(super) arena: Arc<Arena<'p, D>>,
    /// The counts of this rank, including raises that are still pending in the queues of its device.
    pub(super) told: [u32; Count::NUMBER],
    /// For each unit: the count of publications at which its newest shards are there, on every rank along `zero`.
    versions: Vec<u32>,
    /// For each unit: the count of its last gather, if ranks give their shards to slots that they have in common.
    gathers: Vec<u32>,
    /// For each slot for fetched shards, the last fetch into it.
    shards: Vec<u32>,
    pub(super) sums: BucketCounts,
    /// For each kind of parcel and each slot that parcels leave from: the last parcel that was there.
    left: [[u32; OUTGOING_SLOTS]; Parcel::ALL.len()],
    /// Numbers of this rank that are about to be left for others.
    pub(super) mine: Vec<f64>,
    /// The counts that this rank's device waits for, if the device does the waiting.
    pub(super) queued: QueuedWaits,
    /// How waits begin.
    spins: Spins,
    /// Reports waits, and ends them.
    pub(super) watchdog: Arc<RankWatchdog<'p>>,
    moved: Moved,
    /// How bytes get here, if this rank does not reach the memory of others.
    pub(super) carried: Option<CarriedWays>,
    /// How ranks of several hosts meet and exchange numbers and, if nothing else carries bytes between hosts,
    /// everything else.
    pub(super) remote: Option<RemoteRanks>,
}

/// The counts that buckets have reached in the sums of gradients.
#[derive(Default)]
pub(super) struct BucketCounts {
    /// Last reduction in which each bucket was offered.
    pub(super) offers: Vec<Option<u32>>,
    /// Last reduction offered from each slot for staging, then from each bucket with a place of its own.
    staged: Vec<Option<u32>>,
    /// Last settle of each bucket.
    pub(super) settles: Vec<u32>,
    /// Last reduction that filled each slot for sums over a host.
    pub(super) subtotals: [Option<u32>; STAGING_SLOTS],
    /// Last settle that filled each slot for partial sums.
    partials: [Option<u32>; STAGING_SLOTS],
}

impl BucketCounts {
    /// The reduction that a bucket was last offered in.
    #[inline]
    pub(super) fn offer(&self, bucket: usize) -> u32 {
        self.offers[bucket].expect("the schedule offers a bucket before it sums it")
    }
}

impl<'p, D: Device> Shared<'p, D> {
    /// The communication of the rank that `arena` belongs to.
    pub(crate) fn new(arena: Arena<'p, D>) -> Self {
        let plan = arena.plan();
        let (buckets, (first, end)) = (plan.buckets.len(), plan.config.sharing(arena.rank()));
        arena.control(arena.rank()).tell_pid();
        Self {
            told: [0; Count::NUMBER],
            versions: vec![0; plan.units.len()],
            gathers: vec![0; plan.units.len()],
            shards: vec![0; plan.units.len()],
            sums: BucketCounts {
                offers: vec![None; buckets],
                staged: vec![None; STAGING_SLOTS + buckets],
                settles: vec![0; buckets],
                ..BucketCounts::default()
            },
            left: Default::default(),
            mine: vec![0.0; plan.agreed_values()],
            queued: if D::QUEUES { QueuedWaits::of(plan, arena.pipeline_stage()) } else { QueuedWaits::default() },
            spins: Spins::of(end - first),
            watchdog: Arc::new(RankWatchdog {
                plan,
                rank: arena.rank(),
                segment: arena.segment(),
                hosts: Vec::new(),
                sleeps_max: sleeps_of(TIMEOUT),
                is_carried: false,
            }),
            moved: Moved::default(),
            carried: None,
            remote: None,
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

    /// How far this rank has raised a count.
    pub(super) fn told(&self, count: Count) -> u32 {
        self.told[count.index()]
    }

    /// The next value of that count.
    pub(super) fn next(&self, count: Count) -> u32 {
        self.told(count).wrapping_add(1)
    }

    /// Raises a count by one for the others, once this rank's device has done all that it was asked for so far. Returns
    /// the new value.
    pub(super) fn tell(&mut self, device: &D, count: Count) -> u32 {
        let next = self.next(count);
        self.told[count.index()] = next;
        let signal = self.own().signal(count);
        match device.counts() {
            Some(counts) => counts.tell(signal.word(), next),
            None => signal.raise(),
        }
        next
    }

    /// Waits until a count of every other rank along an axis has reached `target`.
    pub(super) fn await_peers(&mut self, device: &D, axis: Axis, count: Count, target: u32) -> Result<(), Lost> {
        for index in 0..self.arena.plan().config.mesh.len(axis) {
            let peer = self.arena.along(axis, index);
            if peer != self.rank() {
                self.await_count(device, peer, count, target)?;
            }
        }
        Ok(())
    }

    /// Waits until a count of every other rank has reached `target`.
    pub(super) fn await_all(&mut self, device: &D, count: Count, target: u32) -> Result<(), Lost> {
        let (ranks, own) = (self.arena.plan().config.mesh.ranks(), self.rank());
        (0..ranks).filter(|&rank| rank != own).try_for_each(|rank| self.await_count(device, rank, count, target))
    }

    /// Waits until a count of `rank` has reached `target`; or has the device wait, before it does what it is asked for
    /// next.
    pub(super) fn await_count(&mut self, device: &D, rank: usize, count: Count, target: u32) -> Result<(), Lost> {
        let Some(counts) = device.counts() else { return self.await_on_host(rank, count, target) };
        self.queued.push(rank, count, target);
        // Bytes that are carried arrive when they are sent.
        if self.carried.is_none() {
            counts.await_count(self.control(rank).signal(count).word(), target);
        }
        self.lost().map_or(Ok(()), Err)
    }

    /// The reason why this rank must not go on, if there is one: MPI's own failure, for the first caller that asks, or
    /// the loss of another rank.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.own().lost().map(|lost| self.or_failure(lost))
    }

    fn or_failure(&self, lost: Lost) -> Lost {
        let failure = self.remote.as_ref().and_then(RemoteRanks::failure);
        failure.map_or(lost, |failure| Lost::Device(Box::new(self.arena.broken(failure))))
    }

    /// The messages to and from other hosts, if they carry what ops need.
    fn op_messages(&self) -> Option<&RemoteRanks> {
        self.remote.as_ref().filter(|_| self.arena.plan().config.sends_messages())
    }

    /// The block in which this rank sees a count of another one. All ranks of a host see the counts of exchanges, and the
    /// counts of data that one of them receives for its host peers.
    fn counts_of(&self, rank: usize, count: Count) -> &Control {
        let config = &self.arena.plan().config;
        let is_for_all = count == Count::Entered || count.is_for_host_peers(config);
        match &self.remote {
            Some(remote) if !is_for_all && !self.arena.plan().config.reaches(self.rank(), rank) => remote.of(rank),
            _ => self.control(rank),
        }
    }

    /// Waits until a count of `rank` has reached `target`.
    pub(super) fn await_on_host(&self, rank: usize, count: Count, target: u32) -> Result<(), Lost> {
        let (watchdog, awaited) = (&self.watchdog, Awaited::Rank(rank));
        let (notice, give_up) = (|periods| watchdog.still_waits(awaited, periods), || watchdog.gives_up(awaited));
        let (own, spins, patience, sleeps_max) = (self.own(), self.spins, Some(&PATIENCE), watchdog.sleeps_max);
        let (notice, give_up) = (&notice, &give_up);
        let waiter = Waiter { own, rank, spins, patience, notice, sleeps_max, give_up };
        self.counts_of(rank, count).wait(count, target, &waiter).map_err(|lost| self.or_failure(lost))
    }

    /// Waits until the newest shards of a unit are there. For shards of other hosts, and those that others give to a slot in
    /// common, waits for the unit's last gather.
    fn await_shards(&mut self, device: &D, unit: usize) -> Result<(), Lost> {
        let config = self.arena.plan().config;
        for zero in 0..config.mesh.zero {
            let peer = self.arena.along(Axis::Zero, zero);
            let (count, target) = match self.op_messages() {
                _ if config.shares_slots() || config.gathers_fetched() => (Count::Gathered, self.gathers[unit]),
                Some(remote) if !config.reaches(self.rank(), peer) => (Count::Gathered, remote.gather_of(unit)),
                _ => (Count::Published, self.versions[unit]),
            };
            if peer != self.rank() {
                self.await_count(device, peer, count, target)?;
            }
        }
        Ok(())
    }

    /// Waits until the data of a bucket for other hosts has left, because their data arrives in the same place.
    fn await_sent(&mut self, device: &D, bucket: usize, axis: Axis) -> Result<(), Lost> {
        if self.op_messages().is_none() {
            return Ok(());
        }
        match axis {
            Axis::Zero => self.await_read(device, axis, Count::Settled, self.sums.offer(bucket)),
            _ => self.await_read(device, axis, Count::Combined, self.sums.settles[bucket]),
        }
    }

    /// Waits until all data for other hosts has left.
    pub(super) fn await_leaving(&self) -> Result<(), Lost> {
        let leaving = self.remote.iter().flat_map(RemoteRanks::leaving);
        leaving.into_iter().try_for_each(|&(rank, count, target)| self.await_on_host(rank, count, target))
    }

    /// Signals that this rank's shard of a unit is new: peers may gather it.
    fn publish(&mut self, device: &D, unit: usize) {
        if self.arena.plan().config.shards_optimizer() {
            self.versions[unit] = self.tell(device, Count::Published);
        }
    }

    /// The staging of a bucket: a slot that buckets take turns with, or a place of its own.
    fn staging_of(&self, bucket: usize) -> usize {
        self.arena.plan().buckets[bucket].slot.unwrap_or(STAGING_SLOTS + bucket)
    }

    /// Signals that the local gradients of a bucket are there.
    fn offer(&mut self, device: &D, bucket: usize) {
        let (staging, offer) = (self.staging_of(bucket), self.tell(device, Count::Offered));
        self.sums.offers[bucket] = Some(offer);
        self.sums.staged[staging] = Some(offer);
    }

    /// Waits until peers have read what lies in the staging of a bucket.
    fn await_staging(&mut self, device: &D, bucket: usize) -> Result<(), Lost> {
        // Older offers out of this staging have been settled before the newest.
        let newest = self.sums.staged[self.staging_of(bucket)];
        newest.map_or(Ok(()), |offer| self.await_read(device, Axis::Zero, Count::Settled, offer))
    }

    /// Waits until the local gradients of a bucket are there on all ranks along `zero`, and until other replicas have
    /// read the older sum in the place of the new one.
    fn await_offers(&mut self, device: &D, bucket: usize) -> Result<(), Lost> {
        self.await_terms(device, Axis::Zero, Count::Offered, self.sums.offer(bucket))?;
        let settle = self.next(Count::Settled);
        self.sums.settles[bucket] = settle;
        let plan = self.arena.plan();
        if plan.config.has_partials() {
            let slot = plan.buckets[bucket].partial_slot();
            if let Some(settle) = self.sums.partials[slot].replace(settle) {
                self.await_read(device, Axis::Replica, Count::Combined, settle)?;
            }
        }
        Ok(())
    }

    /// Signals to ranks along an axis that they may read this rank's part of a sum, and waits for theirs.
    pub(super) fn join(&mut self, device: &D, axis: Axis) -> Result<(), Lost> {
        let count = match axis {
            Axis::Replica => Count::Joined,
            Axis::Zero => Count::Whole,
            Axis::Pipeline => unreachable!("the schedule check admits no spread along the pipeline"),
        };
        let target = self.tell(device, count);
        self.await_peers(device, axis, count, target)
    }

    /// Waits for the data that an op needs from other ranks.
    fn await_op(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        match op {
            // One of the two gathers. The ranks along `zero` publish their units in the same order, so this rank's
            // count at the time holds for all.
            Op::Gather { unit, .. } | Op::Wait { unit }
                if matches!(op, Op::Gather { .. }) == self.arena.plan().config.gathers_early() =>
            {
                self.await_shards(device, unit)
            }
            // Others may still gather what was in its slot.
            Op::FetchShard { slot, .. } if self.arena.plan().config.gathers_fetched() => {
                self.await_peers(device, Axis::Zero, Count::Released, self.shards[slot])
            }
            Op::Claim { bucket } => self.await_staging(device, bucket),
            Op::Subtotal { bucket, axis, .. } => self.await_host_offers(device, bucket, axis),
            Op::Settle { bucket, .. } => self.await_offers(device, bucket),
            Op::Combine { bucket, .. } => {
                self.await_terms(device, Axis::Replica, Count::Settled, self.sums.settles[bucket])
            }
            Op::Spread { axis, .. } => self.join(device, axis),
            Op::Clear { parcel } => {
                let receiver = self
                    .at_pipeline_stage(self.arena.plan().parcel_receiver(parcel, self.arena.coordinates().pipeline));
                let left = self.left[parcel as usize][position.outgoing(parcel)];
                self.await_count(device, receiver, Count::Taken(parcel), left)
            }
            Op::Receive { parcel, .. } => {
                let sender =
                    self.at_pipeline_stage(self.arena.plan().parcel_sender(parcel, self.arena.coordinates().pipeline));
                let target = self.next(Count::Taken(parcel));
                self.await_count(device, sender, Count::Sent(parcel), target)
            }
            _ => Ok(()),
        }
    }

    /// Signals to the other ranks that an op is done.
    fn tell_op(&mut self, device: &D, op: Op, position: &Position) {
        if let Some(unit) = self.arena.plan().tables().renews(op) {
            self.publish(device, unit);
        }
        match op {
            Op::Gather { unit, .. } if self.arena.plan().config.shares_slots() => {
                self.gathers[unit] = self.tell(device, Count::Gathered);
            }
            Op::FetchShard { unit, slot } if self.arena.plan().config.gathers_fetched() => {
                self.gathers[unit] = self.tell(device, Count::Gathered);
                self.shards[slot] = self.gathers[unit];
            }
            op if op.leaves_fetched(&self.arena.plan().config) => {
                self.tell(device, Count::Released);
            }
            Op::Release { .. } if self.arena.plan().config.shares_gathers() => {
                self.tell(device, Count::Released);
            }
            Op::Reduce { bucket, .. } => self.offer(device, bucket),
            Op::Subtotal { .. } => {
                self.tell(device, Count::Subtotalled);
            }
            Op::Settle { .. } => {
                self.tell(device, Count::Settled);
            }
            Op::Combine { .. } => {
                self.tell(device, Count::Combined);
            }
            Op::Send { parcel, .. } => {
                let sent = self.tell(device, Count::Sent(parcel));
                self.left[parcel as usize][position.outgoing(parcel)] = sent;
            }
            Op::Receive { parcel, unit, .. } => {
                self.tell(device, Count::Taken(parcel));
                if parcel == Parcel::TiedParameters {
                    self.publish(device, unit);
                }
            }
            _ => {}
        }
    }

    /// The rank of another pipeline stage in line with this one.
    fn at_pipeline_stage(&self, pipeline: usize) -> usize {
        let plan = self.arena.plan();
        plan.config.mesh.rank(Coordinates { pipeline, ..self.arena.coordinates() })
    }

    /// [`Transport::begin`], without ending the queues of a device after an error.
    ///
    /// # Safety
    /// As there.
    unsafe fn begin_op(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        if let Op::Spread { bucket, axis } = op {
            self.await_sent(device, bucket, axis)?;
        }
        if matches!(op, Op::Gather { .. }) && self.arena.plan().config.shares_gathers() {
            self.await_released(device)?;
        }
        // SAFETY: by the caller's promise.
        unsafe { self.post_at_begin(op, position) };
        self.await_op(device, op, position)?;
        // SAFETY: by the caller's promise.
        unsafe { self.carry(device, op, position) }
    }
}

// SAFETY: `begin` of a wait returns when every owner has published the unit as often as this rank has; owners overwrite
// it only after an exchange. `begin` of a claim returns when every peer has settled the last offer out of the staging;
// of a clear, when the receiver has taken the parcel that lay in the slot; of a settle, a combine, a spread or a
// receive, when signals say that the bytes that they read are there. These ops write places of this rank that peers
// read only after a later signal of it. An exchange waits for the signal of every rank. Devices with queues wait and
// signal in place of the host, for each op in the queue that the plan puts the op in.
unsafe impl<'p, D: Device> Transport<'p, D> for Shared<'p, D> {
    fn arena(&self) -> &Arc<Arena<'p, D>> {
        &self.arena
    }

    fn set_timeout(&mut self, timeout: Duration) {
        Arc::make_mut(&mut self.watchdog).sleeps_max = sleeps_of(timeout);
    }

    fn watchdog(&self) -> Arc<dyn Watchdog + 'p> {
        self.watchdog.clone()
    }

    unsafe fn begin(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        // SAFETY: by the caller's promise.
        let begun = unsafe { self.begin_op(device, op, position) };
        begun.inspect_err(|_| self.leave_queues(device))
    }

    unsafe fn end(&mut self, device: &D, op: Op, position: &Position) {
        // SAFETY: by the caller's promise.
        unsafe { self.send(device, op, position) };
        self.tell_op(device, op, position);
        // SAFETY: by the caller's promise.
        unsafe { self.post_at_end(op, position) };
    }

    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        match (&self.carried, &self.remote) {
            (Some(carried), _) => arrived(carried.arrived(), &self.arena, rank, place),
            (None, Some(remote)) if !self.arena.plan().config.reaches(self.rank(), rank) => {
                arrived(&remote.arrived, &self.arena, rank, place)
            }
            // SAFETY: the op has begun, so nobody writes what it reads.
            _ => unsafe { self.arena.bytes_of(rank, place) },
        }
    }

    unsafe fn exchange(&mut self, device: &D, call: u64, mine: View<D, f64>, all: ViewMut<D, f64>) -> Result<(), Lost> {
        self.moved.copied.agree_bytes += (self.arena.plan().config.mesh.ranks() - 1) * size_of::<f64>() * mine.len();
        if D::QUEUES {
            let exchanged = self.exchange_on_device(device, call, mine, all);
            exchanged.inspect_err(|_| self.leave_queues(device))
        } else {
            self.exchange_on_host(device, call, mine, all)
        }
    }

    /// Numbers that are read in place alternate between two places; those that are carried have one.
    fn phase(&self) -> u64 {
        if self.carried.is_some() { 0 } else { u64::from(self.told(Count::Entered) % 2) }
    }

    fn end_pass(&mut self, device: &D) {
        self.await_parcels(device);
    }

    unsafe fn rehearse(&mut self, device: &D, op: Op, position: &Position) {
        let crossed = self.carried.as_ref().map(|carried| carried.crossed);
        // SAFETY: the device rehearses, so that nothing is sent or received, and nothing is waited for.
        let _ = unsafe { self.carry(device, op, position) };
        if let (Some(carried), Some(crossed)) = (&mut self.carried, crossed) {
            carried.crossed = crossed;
        }
    }

    fn await_device(&mut self, device: &D) -> Result<(), Lost> {
        if D::QUEUES { self.await_queues(device) } else { Ok(()) }
    }

    fn give_up_device(&mut self, device: &D) {
        Shared::give_up_device(self, device);
    }

    fn moved(&self) -> Moved {
        self.moved
    }

    fn compare_clocks(&mut self) -> Result<Option<ClockLook>, Lost> {
        Shared::compare_clocks(self)
    }

    fn crossed(&self) -> Crossed {
        let of_messages = self.remote.as_ref().map_or_else(Crossed::default, |remote| remote.crossed);
        of_messages + self.carried.as_ref().map_or_else(Crossed::default, |carried| carried.crossed)
    }
}
