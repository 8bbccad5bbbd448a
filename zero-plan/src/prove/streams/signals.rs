//! Signals: the counts by which ranks signal their progress to one another, and those that an op waits for, as
//! transports on shared memory promise. Never looks at the memory that they protect.

use crate::layout::{OUTGOING_SLOTS, STAGING_SLOTS};
use crate::mesh::Axis;
use crate::place::Position;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// A count that a rank raises, by one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalCount {
    /// Shards of parameters that have been updated.
    Published,
    /// Buckets offered, settled and combined.
    Offered,
    Settled,
    Combined,
    /// Spreads begun along `replica` and along `zero`.
    Joined,
    Whole,
    /// Agreements entered.
    Entered,
    /// Shards fetched from a tier, and gathers for which others have read theirs.
    Gathered,
    Released,
    /// Parcels sent and received.
    Sent(Parcel),
    Taken(Parcel),
}

impl SignalCount {
    pub const LEN: usize = 9 + 2 * Parcel::ALL.len();

    pub const fn index(self) -> usize {
        match self {
            Self::Published => 0,
            Self::Offered => 1,
            Self::Settled => 2,
            Self::Combined => 3,
            Self::Joined => 4,
            Self::Whole => 5,
            Self::Entered => 6,
            Self::Gathered => 7,
            Self::Released => 8,
            Self::Sent(parcel) => 9 + 2 * parcel as usize,
            Self::Taken(parcel) => 10 + 2 * parcel as usize,
        }
    }
}

/// The ranks whose counts an op waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum CountedRanks {
    /// The other ranks along an axis.
    Along(Axis),
    /// All ranks.
    All,
    /// The rank on another pipeline stage.
    At(usize),
}

/// The counts of some ranks, and how often they must have been raised; 0 is before the first pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedCounts {
    pub whose: CountedRanks,
    pub count: SignalCount,
    pub times: usize,
}

/// The progress of a rank that queues its ops.
pub(super) struct QueuedSoFar {
    /// How often it has raised each of its counts.
    raised: [usize; SignalCount::LEN],
    /// For each unit, its last publication; for each bucket, its last offer and settle.
    published: Vec<usize>,
    offered: Vec<usize>,
    settled: Vec<usize>,
    /// The last offer from each staging: first from slots, then from buckets that have their own.
    staged: Vec<usize>,
    /// The last settle into each place for partial sums.
    partials: [usize; STAGING_SLOTS],
    /// For each unit, its last fetch; for each slot for fetched shards, the last one there.
    fetched: Vec<usize>,
    shards: Vec<usize>,
    /// The last parcel of each kind in each slot that they leave from.
    left: [[usize; OUTGOING_SLOTS]; Parcel::ALL.len()],
}

impl QueuedSoFar {
    pub fn new(plan: &Plan) -> Self {
        let buckets = plan.buckets.len();
        Self {
            raised: [0; SignalCount::LEN],
            published: vec![0; plan.units.len()],
            offered: vec![0; buckets],
            settled: vec![0; buckets],
            staged: vec![0; STAGING_SLOTS + buckets],
            partials: [0; STAGING_SLOTS],
            fetched: vec![0; plan.units.len()],
            shards: vec![0; plan.units.len()],
            left: [[0; OUTGOING_SLOTS]; Parcel::ALL.len()],
        }
    }

    fn raise(&mut self, count: SignalCount) -> usize {
        self.raised[count.index()] += 1;
        self.raised[count.index()]
    }

    fn raised(&self, count: SignalCount) -> usize {
        self.raised[count.index()]
    }

    /// The count that an op raises before it waits for counts of other ranks.
    pub fn first(&mut self, op: Op) -> Option<SignalCount> {
        let count = match op {
            Op::Spread { axis: Axis::Replica, .. } => SignalCount::Joined,
            Op::Spread { .. } => SignalCount::Whole,
            Op::Agree => SignalCount::Entered,
            _ => return None,
        };
        self.raise(count);
        Some(count)
    }

    /// The signals that an op waits for, of the rank of pipeline stage `pipeline`.
    pub fn awaits(&mut self, plan: &Plan, pipeline: usize, op: Op, position: &Position) -> [Option<AwaitedCounts>; 2] {
        let along = |axis, count, times| Some(AwaitedCounts { whose: CountedRanks::Along(axis), count, times });
        let first = match op {
            // Others may still read what was in its slot.
            Op::FetchShard { slot, .. } if plan.config.gathers_fetched() => {
                along(Axis::Zero, SignalCount::Released, self.shards[slot])
            }
            Op::Gather { unit, .. } if plan.config.gathers_fetched() => {
                along(Axis::Zero, SignalCount::Gathered, self.fetched[unit])
            }
            // Ranks along `zero` publish in the same order, so all of them reach the count that this rank then had.
            Op::Gather { unit, .. } => along(Axis::Zero, SignalCount::Published, self.published[unit]),
            Op::Claim { bucket } => along(Axis::Zero, SignalCount::Settled, self.staged[staging_of(plan, bucket)]),
            Op::Settle { bucket, .. } => {
                let next = self.raised(SignalCount::Settled) + 1;
                let partial = plan.buckets[bucket].partial_slot();
                let combined =
                    plan.config.has_partials().then(|| core::mem::replace(&mut self.partials[partial], next));
                let is_combined = combined.and_then(|times| along(Axis::Replica, SignalCount::Combined, times));
                return [along(Axis::Zero, SignalCount::Offered, self.offered[bucket]), is_combined];
            }
            Op::Combine { bucket, .. } => along(Axis::Replica, SignalCount::Settled, self.settled[bucket]),
            Op::Spread { axis: Axis::Replica, .. } => {
                along(Axis::Replica, SignalCount::Joined, self.raised(SignalCount::Joined))
            }
            Op::Spread { axis, .. } => along(axis, SignalCount::Whole, self.raised(SignalCount::Whole)),
            Op::Agree => Some(AwaitedCounts {
                whose: CountedRanks::All,
                count: SignalCount::Entered,
                times: self.raised(SignalCount::Entered),
            }),
            Op::Clear { parcel } => {
                let whose = CountedRanks::At(plan.parcel_receiver(parcel, pipeline));
                let times = self.left[parcel as usize][position.outgoing(parcel)];
                Some(AwaitedCounts { whose, count: SignalCount::Taken(parcel), times })
            }
            Op::Receive { parcel, .. } => {
                let whose = CountedRanks::At(plan.parcel_sender(parcel, pipeline));
                let times = self.raised(SignalCount::Taken(parcel)) + 1;
                Some(AwaitedCounts { whose, count: SignalCount::Sent(parcel), times })
            }
            _ => None,
        };
        [first, None]
    }

    /// The counts that an op raises when it is done.
    pub fn ends(&mut self, plan: &Plan, op: Op, position: &Position) -> [Option<SignalCount>; 2] {
        if let Some(unit) = plan.tables().renews(op) {
            return [self.publish(plan, unit), None];
        }
        match op {
            Op::FetchShard { unit, slot } if plan.config.gathers_fetched() => {
                let times = self.raise(SignalCount::Gathered);
                (self.fetched[unit], self.shards[slot]) = (times, times);
                [Some(SignalCount::Gathered), None]
            }
            op if op.leaves_fetched(&plan.config) => {
                self.raise(SignalCount::Released);
                [Some(SignalCount::Released), None]
            }
            Op::Reduce { bucket, .. } => {
                let times = self.raise(SignalCount::Offered);
                (self.offered[bucket], self.staged[staging_of(plan, bucket)]) = (times, times);
                [Some(SignalCount::Offered), None]
            }
            Op::Settle { bucket, .. } => {
                self.settled[bucket] = self.raise(SignalCount::Settled);
                [Some(SignalCount::Settled), None]
            }
            Op::Combine { .. } => {
                self.raise(SignalCount::Combined);
                [Some(SignalCount::Combined), None]
            }
            Op::Send { parcel, .. } => {
                self.left[parcel as usize][position.outgoing(parcel)] = self.raise(SignalCount::Sent(parcel));
                [Some(SignalCount::Sent(parcel)), None]
            }
            Op::Receive { parcel, unit, .. } => {
                self.raise(SignalCount::Taken(parcel));
                let is_new = parcel == Parcel::TiedParameters;
                [Some(SignalCount::Taken(parcel)), is_new.then(|| self.publish(plan, unit)).flatten()]
            }
            _ => [None, None],
        }
    }

    fn publish(&mut self, plan: &Plan, unit: usize) -> Option<SignalCount> {
        if !plan.config.shards_optimizer() {
            return None;
        }
        self.published[unit] = self.raise(SignalCount::Published);
        Some(SignalCount::Published)
    }
}

fn staging_of(plan: &Plan, bucket: usize) -> usize {
    plan.buckets[bucket].slot.unwrap_or(STAGING_SLOTS + bucket)
}
