//! Links: what a rank sends to those of other hosts in each op, what it receives of them, and which count that raises: the one
//! that they would raise themselves if they shared its memory. So whoever waits does not know which of the two it was.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;

use zero_plan::place::{Arrival, are_counterparts, arrivals, axis_of};
use zero_plan::{Axis, Coordinates, Op, Parcel, Plan, Position};

use super::post::{Message, Post, Raise, Whose};
use crate::arena::Arena;
use crate::device::Device;
use crate::transport::Crossed;
use crate::transport::control::{Control, Count};
use crate::transport::shared::Shared;

/// The links of one rank.
pub(in crate::transport) struct Links {
    post: Post,
    /// What this rank knows of ranks of other hosts: as far as something has come from them, or has left for them.
    counts: super::Mirror,
    /// Where what others have has come to lie, of the op that this rank is in.
    pub arrived: Vec<(usize, Arrival)>,
    /// Gathers that were begun, and the last of each unit.
    gathers: u32,
    of_unit: Vec<u32>,
    /// Gathers and spreads in which this rank has begun to give something along an axis.
    given: [u32; Axis::ALL.len()],
    /// Buckets that are offered and not settled: the terms of the first arrive, in the one place that all take turns with.
    unsettled: VecDeque<(usize, u32)>,
    /// What has begun to leave: to whom, which count tells when it has, and at which number.
    leaving: Vec<(usize, Count, u32)>,
    /// What is being given to the thread that owns MPI.
    messages: Vec<Message>,
    /// Bytes of what it was given so far.
    pub crossed: Crossed,
}

/// Kinds of tags: what is sent in ops of one kind about one unit or bucket has one tag, and comes in the order in which it
/// is sent.
const TAG_KINDS: usize = 10;
/// The largest that every library has is 32767.
const TAGS: usize = 32767 / TAG_KINDS;

/// That of questions about clocks, and of their answers: no op has it.
pub(super) const CLOCK_TAG: c_int = (9 + TAG_KINDS) as c_int;

fn tag(op: Op) -> c_int {
    let (kind, of) = match op {
        Op::Gather { unit, .. } => (0, unit),
        Op::Settle { bucket, .. } => (1, bucket),
        Op::Combine { bucket, .. } => (2, bucket),
        Op::Spread { bucket, axis: Axis::Replica } => (3, bucket),
        Op::Spread { bucket, .. } => (4, bucket),
        Op::Receive { parcel, .. } => (5 + parcel as usize, 0),
        _ => (9, 0),
    };
    (kind + TAG_KINDS * (of % TAGS)) as c_int
}

impl Links {
    pub(super) fn new(plan: &Plan, post: Post, counts: super::Mirror) -> Self {
        let (units, ranks) = (plan.units.len(), plan.config.mesh.ranks());
        Self {
            post,
            counts,
            arrived: Vec::with_capacity(units * ranks),
            gathers: 0,
            of_unit: vec![0; units],
            given: [0; Axis::ALL.len()],
            unsettled: VecDeque::with_capacity(plan.buckets.len()),
            leaving: Vec::with_capacity(ranks * Count::NUMBER),
            messages: Vec::with_capacity(units * plan.config.subtrees().most()),
            crossed: Crossed::default(),
        }
    }

    /// What this rank knows of a rank of another host.
    pub fn of(&self, rank: usize) -> &Control {
        self.counts.of(rank)
    }

    /// Which gather a unit's last was.
    pub fn gather_of(&self, unit: usize) -> u32 {
        self.of_unit[unit]
    }

    /// The thread that owns MPI.
    pub(super) fn post(&self) -> &Post {
        &self.post
    }

    /// What has gone wrong with MPI, for the first that asks.
    pub fn failure(&self) -> Option<crate::device::Failure> {
        self.post.failure()
    }

    /// Receives what an op needs of other hosts, and raises `count` of each of their ranks to `target`.
    ///
    /// # Safety
    /// Nobody uses the places where it arrives before that.
    unsafe fn receive<D: Device>(&mut self, arena: &Arena<D>, op: Op, position: &Position, count: Count, target: u32) {
        let (plan, own) = (arena.plan(), position.places(arena.places()));
        let mesh = &plan.config.mesh;
        for peer in peers(plan, own.at, op) {
            let messages = &mut self.messages;
            arrivals(plan, op, position, &own, &mut |Arrival { from, to, .. }| {
                if mesh.rank(from) == peer {
                    // SAFETY: only the address is taken.
                    let start = unsafe { arena.bytes_mut(to) }.address();
                    messages.push(Message { is_sent: false, peer, tag: tag(op), start, bytes: to.len_bytes });
                }
            });
            let whose = if count.is_for_mates(&plan.config) { Whose::Host(peer) } else { Whose::Own(peer) };
            self.crossed.taken_bytes += bytes(&self.messages);
            // SAFETY: by the caller's promise.
            unsafe { self.post.give(self.messages.drain(..), Raise { whose, count, target }) };
        }
    }

    /// Sends what an op of the ranks of other hosts needs of this one; `count` of each is raised to `target` when it has left.
    ///
    /// # Safety
    /// Nobody writes what it needs before that.
    unsafe fn send<D: Device>(&mut self, arena: &Arena<D>, op: Op, position: &Position, count: Count, target: u32) {
        let (plan, own) = (arena.plan(), position.places(arena.places()));
        for peer in peers(plan, own.at, op) {
            let theirs = position.places(plan.places(plan.config.mesh.coordinates(peer)));
            let messages = &mut self.messages;
            arrivals(plan, op, position, &theirs, &mut |Arrival { from, source, .. }| {
                if from == own.at {
                    // SAFETY: only the address is taken.
                    let start = unsafe { arena.bytes(source) }.address().cast_mut();
                    messages.push(Message { is_sent: true, peer, tag: tag(op), start, bytes: source.len_bytes });
                }
            });
            self.leaves(peer, count, target);
            self.crossed.sent_bytes += bytes(&self.messages);
            // SAFETY: by the caller's promise.
            unsafe { self.post.give(self.messages.drain(..), Raise { whose: Whose::Own(peer), count, target }) };
        }
    }

    /// Notes that something has begun to leave.
    fn leaves(&mut self, peer: usize, count: Count, target: u32) {
        match self.leaving.iter_mut().find(|(rank, of, _)| (*rank, *of) == (peer, count)) {
            Some(leaving) => leaving.2 = target,
            None => self.leaving.push((peer, count, target)),
        }
    }

    /// What has begun to leave, number `index` of it.
    pub fn leaving(&self, index: usize) -> Option<(usize, Count, u32)> {
        self.leaving.get(index).copied()
    }
}

fn bytes(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.bytes).sum()
}

/// The ranks of other hosts that the one at `own` gives something in an op, and takes something of.
fn peers(plan: &Plan, own: Coordinates, op: Op) -> impl Iterator<Item = usize> + use<> {
    let (mesh, rank) = (plan.config.mesh, plan.config.mesh.rank(own));
    let along = move |index| match axis_of(op) {
        Some(Axis::Zero) => Coordinates { zero: index, ..own },
        Some(Axis::Replica) => Coordinates { replica: index, ..own },
        _ => Coordinates { pipeline: index, ..own },
    };
    let (first, end) = match op {
        Op::Receive { parcel, .. } => {
            let sender = plan.parcel_sender(parcel, own.pipeline);
            (sender, sender + 1)
        }
        op => (0, axis_of(op).map_or(0, |axis| mesh.len(axis))),
    };
    let config = plan.config;
    let are_such = move |index: &usize| are_counterparts(&config, op, own, along(*index));
    let ranks = (first..end).filter(are_such).map(move |index| mesh.rank(along(index)));
    ranks.filter(move |&peer| !config.reaches(rank, peer))
}

impl<D: Device> Shared<'_, D> {
    /// What ranks of other hosts are sent and what they send, as an op begins, before this rank waits for what it needs.
    ///
    /// # Safety
    /// The promise of [`crate::transport::Transport::begin`].
    pub(in crate::transport) unsafe fn link(&mut self, op: Op, position: &Position) {
        let (next_whole, next_joined) = (self.next(Count::Whole), self.next(Count::Joined));
        let Some(links) = &mut self.links else { return };
        let arena = &self.arena;
        links.arrived.clear();
        // SAFETY: the op begins, so what it writes is this rank's alone until it has been awaited; what others need of it is
        // there, as their schedules are this one's.
        unsafe {
            match op {
                Op::Gather { unit, .. } => {
                    links.gathers = links.gathers.wrapping_add(1);
                    links.of_unit[unit] = links.gathers;
                    links.receive(arena, op, position, Count::Gathered, links.gathers);
                    links.give(arena, op, position, Axis::Zero);
                }
                Op::Wait { unit } => links.expect(arena, Op::Gather { unit, slot: position.slot(unit) }, position),
                Op::Settle { .. } => links.expect(arena, op, position),
                Op::Combine { bucket, .. } => {
                    links.receive(arena, op, position, Count::Settled, self.sums.settles[bucket]);
                    links.expect(arena, op, position);
                }
                Op::Spread { axis, .. } => {
                    let (count, target) =
                        if axis == Axis::Zero { (Count::Whole, next_whole) } else { (Count::Joined, next_joined) };
                    links.receive(arena, op, position, count, target);
                    links.give(arena, op, position, axis);
                    links.expect(arena, op, position);
                }
                Op::Receive { parcel, .. } => {
                    let next = self.told[Count::Taken(parcel).index()].wrapping_add(1);
                    links.receive(arena, op, position, Count::Sent(parcel), next);
                    links.expect(arena, op, position);
                }
                _ => {}
            }
        }
    }

    /// What they are sent as an op ends, after this rank has told that it is done.
    ///
    /// # Safety
    /// The promise of [`crate::transport::Transport::end`].
    pub(in crate::transport) unsafe fn link_done(&mut self, op: Op, position: &Position) {
        let Some(links) = &mut self.links else { return };
        let (plan, arena) = (self.arena.plan(), &self.arena);
        // SAFETY: what is sent is there, and is written again only after a wait for the count that tells that it has left;
        // terms arrive where those of the bucket before lay, which is settled.
        unsafe {
            match op {
                Op::Reduce { bucket, round } if !plan.config.sums_on_hosts() => {
                    links.offer(arena, bucket, round, position, self.sums.offers[bucket]);
                }
                Op::Subtotal { bucket, round } => {
                    links.offer(arena, bucket, round, position, self.sums.offers[bucket]);
                }
                Op::Settle { bucket, round } => {
                    let settled = links.unsettled.pop_front().map(|(settled, _)| settled);
                    assert_eq!(settled, Some(bucket), "buckets are settled in the order in which they were offered");
                    if let Some(&(next, offer)) = links.unsettled.front() {
                        let settle = Op::Settle { bucket: next, round };
                        links.receive(arena, settle, position, Count::Offered, offer);
                    }
                    if plan.config.mesh.replica > 1 {
                        let combine = Op::Combine { bucket, round };
                        links.send(arena, combine, position, Count::Combined, self.sums.settles[bucket]);
                    }
                }
                Op::Send { parcel, unit, micro_batch } => {
                    links.dispatch(arena, parcel, unit, micro_batch, position, self.told[Count::Sent(parcel).index()]);
                }
                _ => {}
            }
        }
    }

    /// The numbers of this rank on their way to its counterpart on each other host, and theirs to this one, which are those of
    /// all ranks of this host. This exchange is number `told`.
    ///
    /// # Safety
    /// What [`Links::leaving`] names has left; nobody reads the numbers of another host of the exchange before the last.
    pub(in crate::transport) unsafe fn link_numbers(&mut self, told: u32) {
        let (arena, rank) = (&self.arena, self.rank());
        let Some(links) = &mut self.links else { return };
        let mesh = &arena.plan().config.mesh;
        let bytes = zero_plan::footprint::exchanged_bytes(arena.plan().agreed_values());
        for node in (0..mesh.nodes).filter(|&node| node != mesh.node(rank)) {
            let peer = node * mesh.ranks_per_node() + rank % mesh.ranks_per_node();
            let tag = tag(Op::Agree);
            let received = Message { is_sent: false, peer, tag, start: arena.numbers(peer, told), bytes };
            let sent = Message { is_sent: true, peer, tag, start: arena.numbers(rank, told), bytes };
            links.leaves(peer, Count::Exchanged, told);
            links.crossed.sent_bytes += sent.bytes;
            // SAFETY: by the caller's promise.
            unsafe {
                let raise = Raise { whose: Whose::Host(peer), count: Count::Entered, target: told };
                links.post.give(std::iter::once(received), raise);
                let raise = Raise { whose: Whose::Own(peer), count: Count::Exchanged, target: told };
                links.post.give(std::iter::once(sent), raise);
            }
        }
    }
}

impl Links {
    /// Notes where what an op needs of other hosts is about to lie.
    fn expect<D: Device>(&mut self, arena: &Arena<D>, op: Op, position: &Position) {
        let (plan, own) = (arena.plan(), position.places(arena.places()));
        let arrived = &mut self.arrived;
        arrivals(plan, op, position, &own, &mut |arrival| arrived.push((plan.config.mesh.rank(arrival.from), arrival)));
    }

    /// A bucket is on its way to other hosts, and theirs is expected; it is number `offer`.
    ///
    /// # Safety
    /// As for [`Links::send`]; and terms arrive where those of the bucket before lay, which is settled.
    unsafe fn offer<D: Device>(
        &mut self,
        arena: &Arena<D>,
        bucket: usize,
        round: usize,
        position: &Position,
        offer: Option<u32>,
    ) {
        let (offer, settle) = (offer.expect("told just now, or before"), Op::Settle { bucket, round });
        self.unsettled.push_back((bucket, offer));
        // SAFETY: by the caller's promise.
        unsafe {
            if self.unsettled.len() == 1 {
                self.receive(arena, settle, position, Count::Offered, offer);
            }
            self.send(arena, settle, position, Count::Settled, offer);
        }
    }

    /// Sends along an axis what nobody waits to overwrite before the next exchange.
    ///
    /// # Safety
    /// As for [`Links::send`].
    unsafe fn give<D: Device>(&mut self, arena: &Arena<D>, op: Op, position: &Position, axis: Axis) {
        let given = &mut self.given[axis as usize];
        *given = given.wrapping_add(1);
        let given = *given;
        // SAFETY: by the caller's promise.
        unsafe { self.send(arena, op, position, Count::Given, given) };
    }

    /// Sends a parcel, number `sent` of its kind.
    ///
    /// # Safety
    /// As for [`Links::send`].
    unsafe fn dispatch<D: Device>(
        &mut self,
        arena: &Arena<D>,
        parcel: Parcel,
        unit: usize,
        micro_batch: usize,
        position: &Position,
        sent: u32,
    ) {
        let (plan, own) = (arena.plan(), position.places(arena.places()));
        let peer =
            plan.config.mesh.rank(Coordinates { pipeline: plan.parcel_receiver(parcel, own.at.pipeline), ..own.at });
        if plan.config.reaches(arena.rank(), peer) {
            return;
        }
        let place = own.outgoing(parcel, unit, position.outgoing(parcel));
        // SAFETY: only the address is taken.
        let start = unsafe { arena.bytes(place) }.address().cast_mut();
        // Its receiver calls it by its own op.
        let tag = tag(Op::Receive { parcel, unit, micro_batch, slot: 0 });
        let message = Message { is_sent: true, peer, tag, start, bytes: place.len_bytes };
        let raise = Raise { whose: Whose::Own(peer), count: Count::Taken(parcel), target: sent };
        self.leaves(peer, raise.count, sent);
        self.crossed.sent_bytes += message.bytes;
        // SAFETY: by the caller's promise.
        unsafe { self.post.give(std::iter::once(message), raise) };
    }
}
