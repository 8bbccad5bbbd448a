//! Execution: runs the ops of all ranks, each as far as it gets, under the rules by which ranks wait for one another,
//! with or without a cost for each op. Shares no code with the builder of schedules, and does not know what ops
//! compute.
//!
//! Ranks see only tallies of one another, which never decrease. Every op waits until certain tallies are full, and the
//! earlier ops of its own rank determine which. So the rules are monotone: no action of one rank can keep another from
//! continuing. If one order of execution completes, all orders do, and if one gets stuck, all get stuck at the same
//! ops. Trying one order is therefore a proof. Here a collective ends when all its members have begun it, and a parcel
//! is there when it has been sent. No transport lends a buffer: a parcel stays in its slot until it is received. A
//! transport that buffers more only lets ranks continue earlier.

mod stuck;

use crate::groups::{Groups, Scope};
use crate::layout::{Bucket, OUTGOING_SLOTS};
use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

pub(crate) use stuck::{Stuck, Wait};

/// The result of an execution, for each rank. Times are in the unit of the costs.
pub(crate) struct Finish {
    /// When each of its ops ended.
    pub ends: Vec<Vec<u64>>,
    /// The time of its ops, without waiting.
    pub busy: Vec<u64>,
}

/// Runs the ops of each rank, which must have passed their check and have matching collectives. Calls `run` for each op
/// of a rank when it is done, in one of the possible orders; it returns the cost of the op.
pub(crate) fn execute(
    plan: &Plan,
    groups: &Groups,
    ops: &[&[Op]],
    run: &mut dyn FnMut(usize, Op) -> u64,
) -> Result<Finish, Stuck> {
    let mut world = ExecutionWorld::new(plan, groups, ops);
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..ops.len() {
            while world.advance(rank, run) {
                moved = true;
            }
        }
    }
    match (0..ops.len()).find(|&rank| world.ranks[rank].next < ops[rank].len()) {
        Some(rank) => Err(world.stuck(rank)),
        None => Ok(Finish {
            busy: world.ranks.iter().map(|rank| rank.busy).collect(),
            ends: world.ranks.into_iter().map(|rank| rank.ends).collect(),
        }),
    }
}

/// How many ranks have done something, and when the last of them did.
#[derive(Clone, Copy, Default)]
struct Tally {
    count: usize,
    last: u64,
}

impl Tally {
    /// Counts one more in `tallies[nth]`.
    fn add(tallies: &mut Vec<Self>, nth: usize, time: u64) {
        if tallies.len() <= nth {
            tallies.resize(nth + 1, Self::default());
        }
        let tally = &mut tallies[nth];
        *tally = Self { count: tally.count + 1, last: tally.last.max(time) };
    }

    /// When `tallies[nth]` became full, if it is.
    fn full(tallies: &[Self], nth: usize, members: usize) -> Option<u64> {
        tallies.get(nth).filter(|tally| tally.count == members).map(|tally| tally.last)
    }
}

/// An event that an op waits for. `nth` counts the collectives of a communicator, or the parcels of a channel, in order.
#[derive(Clone, Copy)]
enum ExecutionEvent {
    /// All members have begun a collective.
    Begun { scope: Scope, nth: usize },
    /// All members have read what they needed from it.
    Done { scope: Scope, nth: usize },
    /// All members have summed their terms of it over their hosts.
    Subtotalled { scope: Scope, nth: usize },
    /// A parcel to this rank has been sent.
    Sent { parcel: Parcel, nth: usize },
    /// A parcel of this rank has been received.
    Taken { parcel: Parcel, nth: usize },
}

#[derive(Clone)]
struct ExecutingRank {
    next: usize,
    /// Whether it has begun its next op.
    is_inside: bool,
    clock: u64,
    busy: u64,
    /// When each of its ops ended.
    ends: Vec<u64>,
    /// The number of collectives begun in each scope, and one more than the index of the last that is done.
    begun: [usize; 3],
    done: [usize; 3],
    /// The index of the collective that was the last gather of each unit, and the last reduction of each bucket along
    /// `zero` and `replica`.
    gathers: Vec<usize>,
    reductions: Vec<usize>,
    combinations: Vec<usize>,
    /// The gather whose slot it released last.
    released: Option<usize>,
    /// The gather for which a shard was last in each slot for fetched ones.
    fetched: Vec<Option<usize>>,
    /// The collective that last read each bucket's staging, and each bucket's place for partial sums.
    staging: Vec<Option<usize>>,
    partial: Vec<Option<usize>>,
    /// The collective whose sum over a host lies in each bucket's place for such sums.
    subtotals: Vec<Option<usize>>,
    /// One more than the index of the last collective that it has summed over its host.
    subtotalled: usize,
    sent: [usize; Parcel::ALL.len()],
    taken: [usize; Parcel::ALL.len()],
}

impl ExecutingRank {
    /// The communicator and the index of the last sum of a bucket along an axis.
    fn sum(&self, bucket: usize, axis: Axis) -> (Scope, usize) {
        match axis {
            Axis::Zero => (Scope::Zero, self.reductions[bucket]),
            _ => (Scope::Replica, self.combinations[bucket]),
        }
    }
}

struct ExecutionWorld<'a> {
    plan: &'a Plan<'a>,
    groups: &'a Groups,
    ops: &'a [&'a [Op]],
    ranks: Vec<ExecutingRank>,
    /// The collectives of each communicator.
    begun: Vec<Vec<Tally>>,
    done: Vec<Vec<Tally>>,
    subtotalled: Vec<Vec<Tally>>,
    /// The parcels of each sender, by kind.
    sent: Vec<[Vec<Tally>; Parcel::ALL.len()]>,
    taken: Vec<[Vec<Tally>; Parcel::ALL.len()]>,
    /// For each bucket, the first bucket that it takes turns with in staging, and in partial sums.
    staging: Vec<usize>,
    partial: Vec<usize>,
}

impl<'a> ExecutionWorld<'a> {
    fn new(plan: &'a Plan<'a>, groups: &'a Groups, ops: &'a [&'a [Op]]) -> Self {
        let (units, buckets) = (plan.units.len(), plan.buckets.len());
        let rank = ExecutingRank {
            next: 0,
            is_inside: false,
            clock: 0,
            busy: 0,
            ends: Vec::new(),
            begun: [0; 3],
            done: [0; 3],
            gathers: vec![0; units],
            released: None,
            fetched: vec![None; units],
            reductions: vec![0; buckets],
            combinations: vec![0; buckets],
            staging: vec![None; buckets],
            partial: vec![None; buckets],
            subtotals: vec![None; buckets],
            subtotalled: 0,
            sent: [0; Parcel::ALL.len()],
            taken: [0; Parcel::ALL.len()],
        };
        let first = |shares: fn(&Bucket, &Bucket) -> bool| {
            let first_of = |(i, bucket): (usize, &Bucket)| {
                let mut before = plan.buckets[..i].iter();
                before
                    .position(|other| other.pipeline_stage == bucket.pipeline_stage && shares(other, bucket))
                    .unwrap_or(i)
            };
            plan.buckets.iter().enumerate().map(first_of).collect()
        };
        Self {
            plan,
            groups,
            ops,
            ranks: vec![rank; ops.len()],
            begun: vec![Vec::new(); groups.members.len()],
            done: vec![Vec::new(); groups.members.len()],
            subtotalled: vec![Vec::new(); groups.members.len()],
            sent: vec![Default::default(); ops.len()],
            taken: vec![Default::default(); ops.len()],
            staging: first(|a, b| a.slot.is_some() && a.slot == b.slot),
            partial: first(|a, b| a.partial == b.partial),
        }
    }

    /// Runs the next op of a rank, unless it has to wait.
    fn advance(&mut self, rank: usize, run: &mut dyn FnMut(usize, Op) -> u64) -> bool {
        let Some(&op) = self.ops[rank].get(self.ranks[rank].next) else { return false };
        if !self.ranks[rank].is_inside {
            self.ranks[rank].is_inside = true;
            self.begin(rank, op);
        }
        let mut start = self.ranks[rank].clock;
        for event in self.needs(rank, op).into_iter().flatten() {
            let Some(time) = self.time(rank, event) else { return false };
            start = start.max(time);
        }
        let cost = run(rank, op);
        let own = &mut self.ranks[rank];
        own.clock = start + cost;
        own.busy += cost;
        own.ends.push(own.clock);
        own.next += 1;
        own.is_inside = false;
        self.finish(rank, op);
        true
    }

    /// When an event that a rank waits for happened, if it has.
    fn time(&self, rank: usize, event: ExecutionEvent) -> Option<u64> {
        match event {
            ExecutionEvent::Begun { scope, nth } | ExecutionEvent::Done { scope, nth } => {
                let communicator = self.groups.communicator(rank, scope);
                let tallies = if let ExecutionEvent::Begun { .. } = event { &self.begun } else { &self.done };
                Tally::full(&tallies[communicator], nth, self.groups.members[communicator].len())
            }
            ExecutionEvent::Subtotalled { scope, nth } => {
                let communicator = self.groups.communicator(rank, scope);
                Tally::full(&self.subtotalled[communicator], nth, self.groups.members[communicator].len())
            }
            ExecutionEvent::Sent { parcel, nth } => {
                Tally::full(&self.sent[self.groups.sender(rank, parcel)][parcel as usize], nth, 1)
            }
            ExecutionEvent::Taken { parcel, nth } => Tally::full(&self.taken[rank][parcel as usize], nth, 1),
        }
    }

    /// Begins the next collective of a rank in a scope, and returns its index.
    fn begin_in(&mut self, rank: usize, scope: Scope) -> usize {
        let own = &mut self.ranks[rank];
        let nth = own.begun[scope as usize];
        own.begun[scope as usize] += 1;
        Tally::add(&mut self.begun[self.groups.communicator(rank, scope)], nth, own.clock);
        nth
    }

    /// Ends a collective for a rank, which has read what it needs.
    fn end_in(&mut self, rank: usize, scope: Scope, nth: usize) {
        let own = &mut self.ranks[rank];
        own.done[scope as usize] = nth + 1;
        Tally::add(&mut self.done[self.groups.communicator(rank, scope)], nth, own.clock);
    }

    /// Signals to other ranks that an op has begun, before it waits.
    fn begin(&mut self, rank: usize, op: Op) {
        match op {
            // A gather that host peers also read is signaled when it is done.
            Op::Gather { unit, .. } if !self.plan.config.shares_gathers() => {
                self.ranks[rank].gathers[unit] = self.begin_in(rank, Scope::Zero);
            }
            // All ranks send their terms to the rank that sums them. The terms may be overwritten when they have
            // arrived.
            Op::Settle { bucket, .. } if self.plan.config.transport.carries() => {
                let nth = self.begin_in(rank, Scope::Zero);
                self.ranks[rank].reductions[bucket] = nth;
                self.ranks[rank].staging[self.staging[bucket]] = Some(nth);
            }
            Op::Combine { bucket, .. } if self.plan.config.transport.carries() => {
                let nth = self.begin_in(rank, Scope::Replica);
                self.ranks[rank].combinations[bucket] = nth;
                self.ranks[rank].partial[self.partial[bucket]] = Some(nth);
            }
            Op::Reduce { bucket, .. } if !self.plan.config.transport.carries() => {
                let nth = self.begin_in(rank, Scope::Zero);
                self.ranks[rank].reductions[bucket] = nth;
                self.ranks[rank].staging[self.staging[bucket]] = Some(nth);
            }
            Op::Spread { axis: Axis::Replica, .. } => {
                self.begin_in(rank, Scope::Replica);
            }
            Op::Spread { .. } => {
                self.begin_in(rank, Scope::Zero);
            }
            Op::Agree => {
                self.begin_in(rank, Scope::World);
            }
            _ => {}
        }
    }

    /// The events that an op waits for, once it has begun.
    fn needs(&self, rank: usize, op: Op) -> [Option<ExecutionEvent>; 2] {
        let own = &self.ranks[rank];
        let all_in = |scope| Some(ExecutionEvent::Begun { scope, nth: own.begun[scope as usize] - 1 });
        let need = match op {
            // Others may still gather the shard that was in its slot.
            Op::FetchShard { slot, .. } if self.plan.config.gathers_fetched() => {
                own.fetched[slot].map(|nth| ExecutionEvent::Done { scope: Scope::Zero, nth })
            }
            // With streams, the gather itself waits for the shards of other ranks.
            Op::Gather { .. } if self.plan.config.gathers_early() => all_in(Scope::Zero),
            Op::Wait { .. } if self.plan.config.gathers_early() => None,
            // Host peers may still read the slot.
            Op::Gather { .. } => own.released.map(|nth| ExecutionEvent::Done { scope: Scope::Zero, nth }),
            Op::Wait { unit } => Some(ExecutionEvent::Begun { scope: Scope::Zero, nth: own.gathers[unit] }),
            Op::Claim { bucket } if self.plan.config.sums_on_hosts(Axis::Zero) => {
                own.staging[self.staging[bucket]].map(|nth| ExecutionEvent::Subtotalled { scope: Scope::Zero, nth })
            }
            Op::Claim { bucket } => {
                own.staging[self.staging[bucket]].map(|nth| ExecutionEvent::Done { scope: Scope::Zero, nth })
            }
            Op::Subtotal { bucket, axis, .. } => {
                let (scope, nth) = own.sum(bucket, axis);
                let has_left = own.subtotals[self.partial[bucket]].map(|nth| ExecutionEvent::Done { scope, nth });
                return [Some(ExecutionEvent::Begun { scope, nth }), has_left];
            }
            Op::Settle { bucket, .. } => {
                let scope = Scope::Replica;
                let is_read = own.partial[self.partial[bucket]].map(|nth| {
                    let sums_on_hosts = self.plan.config.sums_on_hosts(Axis::Replica);
                    if sums_on_hosts {
                        ExecutionEvent::Subtotalled { scope, nth }
                    } else {
                        ExecutionEvent::Done { scope, nth }
                    }
                });
                return [Some(self.terms(own, bucket, Axis::Zero)), is_read];
            }
            Op::Combine { bucket, .. } => Some(self.terms(own, bucket, Axis::Replica)),
            Op::Spread { axis: Axis::Replica, .. } => all_in(Scope::Replica),
            Op::Spread { .. } => all_in(Scope::Zero),
            Op::Agree => all_in(Scope::World),
            Op::Clear { parcel } => {
                let before = own.sent[parcel as usize].checked_sub(OUTGOING_SLOTS);
                before.map(|nth| ExecutionEvent::Taken { parcel, nth })
            }
            Op::Receive { parcel, .. } => Some(ExecutionEvent::Sent { parcel, nth: own.taken[parcel as usize] }),
            _ => None,
        };
        [need, None]
    }

    /// The event that all terms of a bucket along an axis are there for a rank to add up.
    fn terms(&self, own: &ExecutingRank, bucket: usize, axis: Axis) -> ExecutionEvent {
        let (scope, nth) = own.sum(bucket, axis);
        if self.plan.config.sums_on_hosts(axis) {
            ExecutionEvent::Subtotalled { scope, nth }
        } else {
            ExecutionEvent::Begun { scope, nth }
        }
    }

    /// Signals to other ranks that an op has ended.
    fn finish(&mut self, rank: usize, op: Op) {
        let config = &self.plan.config;
        match op {
            Op::Gather { unit, .. } if config.shares_gathers() => {
                let nth = self.begin_in(rank, Scope::Zero);
                self.ranks[rank].gathers[unit] = nth;
            }
            Op::Gather { unit, slot } if config.gathers_fetched() => {
                let nth = self.ranks[rank].gathers[unit];
                self.ranks[rank].fetched[slot] = Some(nth);
                self.end_in(rank, Scope::Zero, nth);
            }
            Op::Release { unit } if config.shares_gathers() => {
                let nth = self.ranks[rank].gathers[unit];
                self.ranks[rank].released = Some(nth);
                self.end_in(rank, Scope::Zero, nth);
            }
            Op::Subtotal { bucket, axis, .. } => {
                let own = &mut self.ranks[rank];
                let (scope, nth) = own.sum(bucket, axis);
                own.subtotals[self.partial[bucket]] = Some(nth);
                own.subtotalled = nth + 1;
                Tally::add(&mut self.subtotalled[self.groups.communicator(rank, scope)], nth, own.clock);
            }
            Op::Settle { bucket, .. } => {
                self.end_in(rank, Scope::Zero, self.ranks[rank].reductions[bucket]);
                if config.mesh.replica > 1 && !config.transport.carries() {
                    let nth = self.begin_in(rank, Scope::Replica);
                    self.ranks[rank].combinations[bucket] = nth;
                    if !config.reduces_in_place() {
                        self.ranks[rank].partial[self.partial[bucket]] = Some(nth);
                    }
                }
            }
            Op::Combine { bucket, .. } => self.end_in(rank, Scope::Replica, self.ranks[rank].combinations[bucket]),
            Op::Send { parcel, .. } => {
                let own = &mut self.ranks[rank];
                Tally::add(&mut self.sent[rank][parcel as usize], own.sent[parcel as usize], own.clock);
                own.sent[parcel as usize] += 1;
            }
            Op::Receive { parcel, .. } => {
                let own = &mut self.ranks[rank];
                let sender = self.groups.sender(rank, parcel);
                Tally::add(&mut self.taken[sender][parcel as usize], own.taken[parcel as usize], own.clock);
                own.taken[parcel as usize] += 1;
            }
            _ => {}
        }
    }
}
