//! Remote ranks: posts the messages that a rank sends to ranks of other hosts and receives from them, as the plan says:
//! in each op or, if something else carries bytes between hosts, only in exchanges of numbers. The end of a message
//! raises the count that the other rank would raise itself in shared memory, so a rank that waits need not know which of
//! the two raised it.
#![allow(unsafe_code)]

use std::ffi::c_int;

use zero_plan::place::{Arrival, Position, arrivals};
use zero_plan::postings::{Moment, Payload, PostingBatch, Postings};
use zero_plan::{Axis, Op, Plan};

use super::progress_thread::{CountedBlocks, MessageBytes, ProgressThread, Raise};
use crate::transport::Crossed;
use crate::transport::control::{Control, Count};
use crate::transport::shared::{BucketCounts, Shared};
use zero_core::arena::Arena;
use zero_core::device::Device;

/// How one rank exchanges messages with ranks of other hosts.
pub(in crate::transport) struct RemoteRanks {
    thread: ProgressThread,
    /// Counts of ranks of other hosts, raised as messages from them arrive and as messages to them leave.
    counts: super::Mirror,
    /// Where the bytes of other ranks that the current op needs have arrived.
    pub arrived: Vec<(usize, Arrival)>,
    /// Number of gathers that were begun, and the number of the last one of each unit.
    gathers: u32,
    of_unit: Vec<u32>,
    /// Gathers and spreads in which this rank has begun to send along an axis.
    given: [u32; Axis::ALL.len()],
    /// The messages that this rank posts, in order.
    postings: Postings,
    /// Batches that have begun to leave: their receiver, the count that shows that they have left, and its value then.
    leaving: Vec<(usize, Count, u32)>,
    /// Messages that are being passed to the thread that owns MPI.
    messages: Vec<MessageBytes>,
    /// Bytes that the thread was given so far.
    pub crossed: Crossed,
}

/// The value of each count that this rank has told, and the counts of its buckets.
struct ToldCounts<'a> {
    counts: &'a [u32; Count::NUMBER],
    sums: &'a BucketCounts,
}

impl ToldCounts<'_> {
    fn of(&self, count: Count) -> u32 {
        self.counts[count.index()]
    }

    fn next(&self, count: Count) -> u32 {
        self.of(count).wrapping_add(1)
    }
}

impl RemoteRanks {
    pub(super) fn new(plan: &Plan, thread: ProgressThread, counts: super::Mirror) -> Self {
        let (units, ranks) = (plan.units.len(), plan.config.mesh.ranks());
        Self {
            thread,
            counts,
            arrived: Vec::with_capacity(units * ranks),
            gathers: 0,
            of_unit: vec![0; units],
            given: [0; Axis::ALL.len()],
            postings: Postings::new(plan.buckets.len()),
            leaving: Vec::with_capacity(ranks * Count::NUMBER),
            messages: Vec::with_capacity(
                units * plan.config.subtotal_axis().map_or(1, |axis| plan.config.subtrees(axis).most()),
            ),
            crossed: Crossed::default(),
        }
    }

    /// The counts of a rank of another host, as this rank knows them.
    pub fn of(&self, rank: usize) -> &Control {
        self.counts.of(rank)
    }

    /// The number of a unit's last gather.
    pub fn gather_of(&self, unit: usize) -> u32 {
        self.of_unit[unit]
    }

    /// The thread that owns MPI.
    pub(super) fn thread(&self) -> &ProgressThread {
        &self.thread
    }

    /// The failure of MPI, if there is one; only the first caller receives it.
    pub fn failure(&self) -> Option<zero_core::device::Failure> {
        self.thread.failure()
    }

    /// Counts a beginning op among those of its kind.
    fn count(&mut self, op: Op) {
        match op {
            Op::Gather { unit, .. } => {
                self.gathers = self.gathers.wrapping_add(1);
                self.of_unit[unit] = self.gathers;
                self.gives(Axis::Zero);
            }
            Op::Spread { axis, .. } => self.gives(axis),
            _ => {}
        }
    }

    fn gives(&mut self, axis: Axis) {
        let given = &mut self.given[axis as usize];
        *given = given.wrapping_add(1);
    }

    /// Passes the messages that the plan posts at a moment of an op to the thread. When a batch has arrived, the thread
    /// raises the count of its sender that the op waits for; when one has left, it raises the count by which its receiver
    /// would report that it has read it.
    ///
    /// # Safety
    /// Nobody uses a place where something arrives before it has arrived, or writes a place that something leaves from
    /// before it has left.
    unsafe fn give<D: Device>(
        &mut self,
        arena: &Arena<D>,
        moment: Moment,
        op: Op,
        position: &Position,
        told: &ToldCounts,
    ) {
        let (plan, at) = (arena.plan(), arena.coordinates());
        let (gathers, given) = (self.gathers, self.given);
        let Self { thread, postings, leaving, messages, crossed, .. } = self;
        postings.post(plan, at, moment, op, &mut |batch| {
            let PostingBatch { is_sent, peer, .. } = batch;
            let tag = c_int::from(batch.tag());
            batch.messages(plan, at, position, &mut |payload| {
                let start = match payload {
                    // SAFETY: only the address is taken.
                    Payload::At(place) if is_sent => unsafe { arena.bytes(place) }.address().cast_mut(),
                    // SAFETY: as above.
                    Payload::At(place) => unsafe { arena.bytes_mut(place) }.address(),
                    Payload::Numbers { of } => arena.numbers(of, told.of(Count::Entered)),
                };
                messages.push(MessageBytes { is_sent, peer, tag, start, bytes: payload.bytes(plan) });
            });
            let bytes: usize = messages.iter().map(|message| message.bytes).sum();
            let (count, target) = if is_sent { left(batch.op, given, told) } else { come(batch.op, gathers, told) };
            if is_sent {
                crossed.sent_bytes += bytes;
                match leaving.iter_mut().find(|(rank, of, _)| (*rank, *of) == (peer, count)) {
                    Some(leaving) => leaving.2 = target,
                    None => leaving.push((peer, count, target)),
                }
            } else if count != Count::Entered {
                crossed.taken_bytes += bytes;
            }
            let is_for_all = count == Count::Entered || count.is_for_host_peers(&plan.config);
            let whose = if is_for_all { CountedBlocks::Host(peer) } else { CountedBlocks::Own(peer) };
            // SAFETY: by the caller's promise.
            unsafe { thread.give(messages.drain(..), Raise { whose, count, target }) };
        });
    }

    /// The batches that have begun to leave.
    pub fn leaving(&self) -> &[(usize, Count, u32)] {
        &self.leaving
    }

    /// Notes where the bytes that an op needs from other hosts are about to arrive.
    fn expect<D: Device>(&mut self, arena: &Arena<D>, op: Op, position: &Position) {
        let (plan, own) = (arena.plan(), position.places(arena.places()));
        let arrived = &mut self.arrived;
        arrivals(plan, op, position, &own, &mut |arrival| arrived.push((plan.config.mesh.rank(arrival.from), arrival)));
    }
}

/// The sender's count that is raised once the bytes that an op needs have arrived, and its new value.
fn come(op: Op, gathers: u32, told: &ToldCounts) -> (Count, u32) {
    match op {
        Op::Gather { .. } => (Count::Gathered, gathers),
        Op::Settle { bucket, .. } => (Count::Offered, told.sums.offer(bucket)),
        Op::Combine { bucket, .. } => (Count::Settled, told.sums.settles[bucket]),
        Op::Spread { axis: Axis::Zero, .. } => (Count::Whole, told.next(Count::Whole)),
        Op::Spread { .. } => (Count::Joined, told.next(Count::Joined)),
        Op::Receive { parcel, .. } => (Count::Sent(parcel), told.next(Count::Taken(parcel))),
        Op::Agree => (Count::Entered, told.of(Count::Entered)),
        _ => unreachable!("the plan receives nothing for {op:?}"),
    }
}

/// The receiver's count that is raised once the bytes that an op needs have left, and its new value. Bytes that are not
/// overwritten before the next exchange share one count.
fn left(op: Op, given: [u32; Axis::ALL.len()], told: &ToldCounts) -> (Count, u32) {
    match op {
        Op::Gather { .. } => (Count::Given, given[Axis::Zero as usize]),
        Op::Spread { axis, .. } => (Count::Given, given[axis as usize]),
        Op::Settle { bucket, .. } => (Count::Settled, told.sums.offer(bucket)),
        Op::Combine { bucket, .. } => (Count::Combined, told.sums.settles[bucket]),
        Op::Send { parcel, .. } => (Count::Taken(parcel), told.of(Count::Sent(parcel))),
        Op::Agree => (Count::Exchanged, told.of(Count::Entered)),
        _ => unreachable!("the plan sends nothing for {op:?}"),
    }
}

impl<D: Device> Shared<'_, D> {
    /// Posts the messages to and from ranks of other hosts as an op begins, before this rank waits for what it needs.
    ///
    /// # Safety
    /// The promise of [`crate::transport::Transport::begin`].
    pub(in crate::transport) unsafe fn post_at_begin(&mut self, op: Op, position: &Position) {
        let by_messages = self.arena.plan().config.sends_messages();
        let Some(remote) = self.remote.as_mut().filter(|_| by_messages) else { return };
        let (arena, told) = (&self.arena, ToldCounts { counts: &self.told, sums: &self.sums });
        remote.arrived.clear();
        remote.count(op);
        // SAFETY: the op begins, so what it writes is this rank's alone until it has been awaited; what others need of
        // it is there, because they follow the same schedule.
        unsafe { remote.give(arena, Moment::Begin, op, position, &told) };
        match op {
            Op::Wait { unit } => remote.expect(arena, Op::Gather { unit, slot: position.slot(unit) }, position),
            Op::Settle { .. } | Op::Combine { .. } | Op::Spread { .. } | Op::Receive { .. } => {
                remote.expect(arena, op, position);
            }
            _ => {}
        }
    }

    /// Posts messages to and from ranks of other hosts as an op ends, after this rank has signalled that it is done.
    ///
    /// # Safety
    /// The promise of [`crate::transport::Transport::end`].
    pub(in crate::transport) unsafe fn post_at_end(&mut self, op: Op, position: &Position) {
        let by_messages = self.arena.plan().config.sends_messages();
        let Some(remote) = self.remote.as_mut().filter(|_| by_messages) else { return };
        if let Op::Settle { .. } = op {
            let settled = remote.postings.receives_terms_for();
            assert_eq!(settled, Some(op), "buckets are settled in the order in which they were offered");
        }
        let told = ToldCounts { counts: &self.told, sums: &self.sums };
        // SAFETY: what is sent is there, and is written again only after a wait for the count that tells that it has
        // left; terms arrive where those of the bucket before lay, which is settled.
        unsafe { remote.give(&self.arena, Moment::End, op, position, &told) };
    }

    /// Posts the numbers of this rank to its counterpart on each other host, and receives the counterpart's, which this rank
    /// reads for all ranks of this host. The number of the exchange is the last that this rank has told.
    ///
    /// # Safety
    /// The batches of [`RemoteRanks::leaving`] have left; nobody reads another host's numbers of the exchange before
    /// the last.
    pub(in crate::transport) unsafe fn post_numbers(&mut self) {
        let Some(remote) = &mut self.remote else { return };
        let told = ToldCounts { counts: &self.told, sums: &self.sums };
        // The places of numbers do not depend on earlier ops. A position without units allocates nothing.
        let position = Position::new(0);
        // SAFETY: by the caller's promise.
        unsafe { remote.give(&self.arena, Moment::Exchange, Op::Agree, &position, &told) };
    }
}
