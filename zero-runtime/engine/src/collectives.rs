//! Collectives: does the work of communicating ops on bytes that have arrived: copies them, changes their width, and sums
//! them along the plan's tree. The transport decides when; the plan decides where. Never waits except in the transport.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::place::{Place, Places, Position};
use zero_plan::{Axis, Coordinates, Kind, Moved, Op, Parcel, Plan, Subtree, Traffic};

use super::words::StepWords;
use zero_core::arena::Arena;
use zero_core::device::{Device, Stored, Write};
use zero_core::lost::Lost;
use zero_core::transport::Transport;
use zero_core::view::View;

/// One rank's side of all communication: its memory, its device, and its transport. An [`super::Engine`] has one; used
/// on its own, it measures how long communication takes.
pub struct Collectives<'p, D: Device, T> {
    pub(super) plan: &'p Plan<'p>,
    pub(super) arena: Arc<Arena<'p, D>>,
    pub(super) device: D,
    pub(super) transport: T,
    /// The position of this rank in the table that it walks over.
    pub(super) position: Position,
    /// The traffic that this rank has read or copied from peers' memory.
    moved: Moved,
}

/// How many of a micro-batch's tokens are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub tokens: usize,
    pub of: usize,
}

impl Share {
    /// The part of a place that holds these tokens.
    pub fn of_place(self, place: Place) -> Place {
        place.first(place.len_bytes / self.of * self.tokens)
    }
}

// SAFETY of all views made here: an op reads and writes the places that the plan gives it, and `prove` shows that they
// hold the data that it needs. The transport has begun the op, so peers have written the bytes that it reads, and do
// not read the bytes that it writes. It writes only bytes of this rank, which do not overlap those that it reads,
// unless `reduce` is told which summand they are. Views end with the op.
impl<'p, D: Device, T: Transport<'p, D>> Collectives<'p, D, T> {
    /// The side of the rank that `transport` connects.
    pub fn new(transport: T, device: D) -> Self {
        let arena = Arc::clone(transport.arena());
        let plan = arena.plan();
        Self { plan, arena, device, transport, position: Position::new(plan.units.len()), moved: Moved::default() }
    }

    /// The plan.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// All traffic from other ranks so far.
    pub fn moved(&self) -> Moved {
        let mut all = self.transport.moved();
        all += self.moved;
        all
    }

    /// The places of the walk that this rank is in.
    pub(super) fn places(&self) -> Places<'p> {
        self.position.places(self.arena.places())
    }

    /// Begins an op: see [`Transport::begin`].
    ///
    /// # Safety
    /// The op is the next of this rank's table, and the same holds for all ranks: the promise of [`Transport`].
    pub(super) unsafe fn begin(&mut self, op: Op) -> Result<(), Lost> {
        // SAFETY: by the caller's promise.
        unsafe { self.transport.begin(&self.device, op, &self.position) }
    }

    /// Ends an op that was begun and done.
    ///
    /// # Safety
    /// As for [`Self::begin`].
    pub(super) unsafe fn end(&mut self, op: Op) {
        // SAFETY: by the caller's promise.
        unsafe { self.transport.end(&self.device, op, &self.position) };
        self.position.pass(op);
    }

    /// Waits until the device has done all ops so far, so that the host can read their results.
    pub(super) fn finish(&mut self) -> Result<(), Lost> {
        self.transport.await_device(&self.device)?;
        self.require_device()
    }

    /// Checks that nothing is known to have failed on the device.
    pub(super) fn require_device(&mut self) -> Result<(), Lost> {
        let Some(failure) = self.device.failure() else { return Ok(()) };
        self.transport.give_up_device(&self.device);
        Err(Lost::Device(Box::new(self.arena.broken(failure))))
    }

    /// Begins, does and ends an op that computes nothing.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    ///
    /// # Safety
    /// The promise of [`Transport`]: the op is the next of this rank's table, and the same holds for all ranks.
    pub unsafe fn run(&mut self, op: Op) -> Result<(), Lost> {
        let config = &self.plan.config;
        let whole = Share { tokens: config.tokens(), of: config.tokens() };
        // SAFETY: by the caller's promise.
        unsafe {
            self.begin(op)?;
            self.execute(op, whole);
            self.end(op);
        }
        Ok(())
    }

    /// Gathers the first `len` words of each rank, for the reason that `call` encodes.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    ///
    /// # Safety
    /// The promise of [`Transport`]: any code after it relies on all ranks having called it for this reason.
    pub unsafe fn exchange(&mut self, call: u64, len: usize) -> Result<(), Lost> {
        let (mine, all) = (self.arena.own_words(len), self.arena.all_words_mut(len));
        // SAFETY: by the caller's promise.
        unsafe { self.transport.exchange(&self.device, call, mine, all) }
    }

    /// Does an op that was begun, unless it computes.
    ///
    /// # Safety
    /// As for [`Self::begin`].
    pub(super) unsafe fn execute(&mut self, op: Op, share: Share) {
        match op {
            // A device with queues gathers in a queue as early as it can; otherwise the host gathers when it must.
            Op::Gather { unit, slot } if self.plan.config.gathers_early() => self.gather(unit, slot),
            Op::Gather { unit, slot } if self.plan.config.shares_slots() => self.give(unit, slot),
            Op::Wait { unit } if !self.plan.config.gathers_early() => self.gather(unit, self.position.slot(unit)),
            Op::Convert { unit, slot } => {
                let places = self.places();
                self.convert(places.computed_on(unit, slot), self.arena.rank(), places.flat(unit));
            }
            Op::Release { unit } => self.release(unit),
            Op::Subtotal { bucket, axis, .. } => self.subtotal(bucket, axis),
            Op::Settle { bucket, round } => self.sum(Axis::Zero, bucket, round),
            Op::Combine { bucket, round } => self.sum(Axis::Replica, bucket, round),
            Op::Fold { unit } => {
                self.add_tied(unit, self.arena.rank(), self.places());
            }
            Op::Spread { bucket, axis } => self.spread(bucket, axis),
            Op::Receive { parcel, unit, slot, .. } => self.receive(parcel, unit, slot, share),
            _ => {}
        }
    }

    /// [`Self::execute`] on a device that rehearses: no bytes arrive from other ranks.
    ///
    /// # Safety
    /// The device rehearses.
    pub(super) unsafe fn rehearse(&mut self, op: Op, share: Share) {
        let moved = self.moved;
        // SAFETY: by the caller's promise, no byte is touched.
        unsafe {
            self.transport.rehearse(&self.device, op, &self.position);
            self.execute(op, share);
        }
        self.moved = moved;
    }

    fn units_of(&self, bucket: usize) -> impl Iterator<Item = usize> + use<'p, D, T> {
        let (plan, bucket) = (self.plan, self.plan.buckets[bucket]);
        (bucket.first..=bucket.last).filter(|&unit| plan.placements[unit].padded > 0)
    }

    /// The traffic that counts another rank's terms: in place, if they are read there; otherwise copied.
    fn terms_of(&mut self, rank: usize) -> &mut Traffic {
        let is_near = self.plan.config.reaches(self.arena.rank(), rank);
        if is_near { &mut self.moved.in_place } else { &mut self.moved.copied }
    }

    /// Counts one term of each other rank along an axis.
    fn count_terms(&mut self, axis: Axis, count: impl Fn(&mut Traffic)) {
        for index in 0..self.plan.config.mesh.len(axis) {
            let rank = self.arena.along(axis, index);
            if rank != self.arena.rank() {
                count(self.terms_of(rank));
            }
        }
    }

    /// The bytes of a rank at a place.
    fn bytes(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        // SAFETY: see above.
        unsafe { if rank == self.arena.rank() { self.arena.bytes(place) } else { self.transport.peer(rank, place) } }
    }

    /// The parameters or gradients that a rank has at a place, to copy. From an inbox these are parameters, although
    /// the terms of sums arrive there too.
    pub(super) fn of_rank(&self, rank: usize, place: Place) -> Stored<'_, D> {
        let region = if place.region == Kind::Inbox { Kind::Parameters } else { place.region };
        Stored::of(self.arena.width(Place { region, ..place }), self.bytes(rank, place))
    }

    /// Whether a rank's bytes already lie at their destination.
    fn is_there(&self, to: Place, rank: usize, from: Place) -> bool {
        // SAFETY: the view is used only for its address.
        self.bytes(rank, from).address() == unsafe { self.arena.bytes(to) }.address()
    }

    /// Copies bytes of a peer, whatever their type; returns their number.
    fn copy(&self, to: Place, rank: usize, from: Place) -> usize {
        if !self.is_there(to, rank, from) {
            // SAFETY: see above; the places lie in different ranks.
            self.device.copy(unsafe { self.arena.bytes_mut(to) }, self.bytes(rank, from));
        }
        from.len_bytes
    }

    /// Copies a rank's numbers from the width of one place to that of the other; returns the number of bytes read from
    /// a peer.
    fn convert(&self, to: Place, rank: usize, from: Place) -> usize {
        if !self.is_there(to, rank, from) {
            // SAFETY: see above; the places lie in different ranks or regions, or are different parts of one.
            self.device.convert(unsafe { self.arena.stored_mut(to) }, self.of_rank(rank, from));
        }
        if rank == self.arena.rank() { 0 } else { from.len_bytes }
    }

    /// Sums `count` stretches of ranks into a place of this rank, which may be one of them: number `own`.
    fn reduce(
        &self,
        to: Place,
        count: usize,
        own: Option<usize>,
        source: impl Fn(usize) -> (usize, Place),
        write: Write,
    ) {
        let stored = |index: usize| {
            let (rank, place) = source(index);
            Stored::of(self.arena.width(place), self.bytes(rank, place))
        };
        // SAFETY: see above.
        self.device.reduce(unsafe { self.arena.stored_mut(to) }, count, own, &stored, write);
    }

    /// Copies this rank's shard of a unit into a slot that it shares with its host peers.
    fn give(&mut self, unit: usize, slot: usize) {
        let (own, config) = (self.places(), &self.plan.config);
        let to = own.computed_on(unit, slot).share(own.at.zero, config.mesh.zero);
        self.convert(to, self.arena.rank(), own.given_shard(unit, self.position.shard_slot()));
    }

    /// Copies the shards of a unit from their owners, or from a host peer that received them for the host. Shards that
    /// are read in place are only counted.
    fn gather(&mut self, unit: usize, slot: usize) {
        let (own, config) = (self.places(), &self.plan.config);
        let gathers_for_use = config.shards_parameters();
        let whole = if gathers_for_use { own.computed_on(unit, slot) } else { own.flat(unit) };
        for zero in 0..config.mesh.zero {
            let (is_own, receiver) = (zero == own.at.zero, config.receiver(Axis::Zero, own.at.zero, zero));
            let to = whole.share(zero, config.mesh.zero);
            if config.shares_slots() && (is_own || receiver != own.at.zero) {
                self.moved.in_place.gather_bytes += if is_own { 0 } else { to.len_bytes };
                continue;
            }
            let (holder, from) = own.gathered_from(unit, zero, slot);
            let rank = self.arena.along(Axis::Zero, holder.at.zero);
            if to.region == Kind::Parameters && (is_own || gathers_for_use) {
                self.moved.in_place.gather_bytes += if is_own { 0 } else { from.len_bytes };
            } else {
                self.moved.copied.gather_bytes += self.convert(to, rank, from);
            }
        }
    }

    /// In a debug build, fills the released slot with NaN, so that a use after release shows as a loss that is not
    /// finite.
    fn release(&self, unit: usize) {
        // Host peers may still compute on a shared slot.
        if cfg!(debug_assertions) && self.plan.config.uses_slots() && !self.plan.config.shares_slots() {
            let slot = self.places().computed_on(unit, self.position.slot(unit));
            // SAFETY: see above: the slot is this rank's own.
            self.device.fill(unsafe { self.arena.bytes_mut(slot) }, u8::MAX);
        }
    }

    /// For each host's counterpart of this rank, sums the terms of a bucket from the ranks of this host along an axis.
    fn subtotal(&mut self, bucket: usize, axis: Axis) {
        let (own, config, per_host) = (self.places(), &self.plan.config, self.plan.config.ranks_per_host(axis));
        let index = own.at.along(axis);
        for unit in self.units_of(bucket) {
            for host in 0..config.hosts_along(axis) {
                let of = host * per_host + index % per_host;
                for subtree in config.subtrees(axis).of_host(index / per_host) {
                    let source = |number: usize| {
                        let index = subtree.first + number;
                        (self.arena.along(axis, index), own.along(axis, index).term(axis, unit, of))
                    };
                    let to = own.subtotal(axis, unit, host, subtree.first);
                    self.reduce(to, subtree.ranks(), None, source, Write::Set);
                }
                *self.moved.in_place.reduced_mut(axis) += (per_host - 1) * own.term(axis, unit, of).len_bytes;
            }
        }
    }

    /// Sums all hosts' terms of this rank's part of a unit along an axis. If several hosts have parts of one subtree,
    /// their sums are added in f32 in the place of the first, as in a single sum.
    fn sum_hosts(&mut self, axis: Axis, unit: usize, to: Place, write: Write) {
        let (own, config) = (self.places(), &self.plan.config);
        let subtrees = config.subtrees(axis);
        let source = |subtree: Subtree| {
            let (index, place) = own.summed_over(axis, unit, subtree);
            (self.arena.along(axis, index), place)
        };
        for [left, right] in subtrees.joins() {
            self.reduce(own.joined(axis, unit, left.first), 1, None, |_| source(right), Write::Add);
        }
        let (number, block) = subtrees.blocks();
        self.reduce(to, number, None, |number| source(block(number)), write);
        let far = subtrees.count() - subtrees.count_of(own.at.along(axis) / config.ranks_per_host(axis));
        *self.moved.copied.reduced_mut(axis) += far * own.joined(axis, unit, 0).len_bytes;
    }

    /// Sums the terms of this rank's part of a bucket from all ranks along an axis.
    fn sum(&mut self, axis: Axis, bucket: usize, round: usize) {
        let (own, config) = (self.places(), &self.plan.config);
        let (ranks, index) = (config.mesh.len(axis), own.at.along(axis));
        // A sum within one replica covers one round. The sum over all replicas is added to that of earlier rounds.
        let is_new = round == 0 || axis == Axis::Zero && config.has_partials();
        let write = if is_new { Write::Set } else { Write::Add };
        for unit in self.units_of(bucket) {
            let to = own.sum(axis, unit);
            if config.sums_on_hosts(axis) {
                self.sum_hosts(axis, unit, to, write);
                continue;
            }
            let in_place = (to == own.term(axis, unit, index)).then_some(index);
            if ranks > 1 || in_place.is_none() {
                let source =
                    |peer: usize| (self.arena.along(axis, peer), own.along(axis, peer).term(axis, unit, index));
                self.reduce(to, ranks, in_place, source, write);
                self.count_terms(axis, |terms| *terms.reduced_mut(axis) += to.len_bytes);
            }
        }
    }

    /// Adds the gradients of a tied unit that `rank` has summed to the same part of its owner's; returns the number of
    /// their bytes.
    fn add_tied(&self, tied: usize, rank: usize, of_rank: Places) -> usize {
        let (own, owner, at) = (self.places(), self.plan.units[tied].source, self.arena.coordinates());
        let from = of_rank.part(of_rank.reduced(tied), at.replica);
        self.reduce(own.part(own.reduced(owner), at.replica), 1, None, |_| (rank, from), Write::Add);
        from.len_bytes
    }

    /// Gathers the sums of the ranks along an axis into this rank's own gradients: from replicas, the parts of this
    /// rank's shards; from other ranks, their shards. After the agreement, these are directions, and none of them comes
    /// from a host peer. Sums that a host peer has received for the host are copied from the host peer's own place,
    /// before this rank enters the agreement on loss and norm. The host peer writes there again only in the next step,
    /// after all ranks have entered the agreement, so no other wait is needed.
    fn spread(&mut self, bucket: usize, axis: Axis) {
        let (own, tables) = (self.places(), self.plan.tables());
        for unit in self.units_of(bucket).filter(|&unit| tables.is_spread(unit, axis)) {
            for index in 0..self.plan.config.mesh.len(axis) {
                let (holder, from, to) = own.spread_from(unit, axis, index);
                let rank = self.arena.along(axis, holder.at.along(axis));
                if rank == self.arena.rank() && from == to {
                    continue;
                }
                let bytes = self.convert(to, rank, from);
                match axis {
                    Axis::Replica => self.moved.copied.replica_spread_bytes += bytes,
                    _ => self.moved.copied.spread_bytes += bytes,
                }
            }
        }
    }

    /// Copies a parcel from another pipeline stage.
    fn receive(&mut self, parcel: Parcel, unit: usize, slot: usize, share: Share) {
        let at = self.arena.coordinates();
        let sender = Coordinates { pipeline: self.plan.parcel_sender(parcel, at.pipeline), ..at };
        let (rank, there) = (self.plan.config.mesh.rank(sender), self.plan.places(sender));
        let (from, to) = (self.position.arriving(parcel), self.places().incoming(parcel, unit, slot));
        match parcel {
            Parcel::Activations => {
                let from = share.of_place(there.outgoing(parcel, unit - 1, from));
                self.moved.copied.activation_bytes += self.copy(share.of_place(to), rank, from);
            }
            Parcel::Gradients => {
                let from = share.of_place(there.outgoing(parcel, unit + 1, from));
                self.moved.copied.gradient_bytes += self.copy(share.of_place(to), rank, from);
            }
            Parcel::TiedGradients => {
                let bytes = self.add_tied(self.plan.units.len() - 1, rank, there);
                self.terms_of(rank).tied_bytes += bytes;
            }
            Parcel::TiedParameters => {
                let from = there.outgoing(parcel, self.plan.units[unit].source, from);
                self.moved.copied.tied_bytes += self.convert(to, rank, from);
            }
        }
    }
}

#[cfg(test)]
mod tests;
