//! Signals: the counts by which ranks tell one another how far they are, and which of them an op waits for: what transports on
//! shared memory promise. Never looks at what they protect.

use crate::layout::{OUTGOING_SLOTS, STAGING_SLOTS};
use crate::mesh::Axis;
use crate::place::Position;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// A count that a rank raises, by one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Shards of parameters that are new.
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
    /// Parcels sent and taken.
    Sent(Parcel),
    Taken(Parcel),
}

impl Count {
    pub const LEN: usize = 7 + 2 * Parcel::ALL.len();

    pub const fn index(self) -> usize {
        match self {
            Self::Published => 0,
            Self::Offered => 1,
            Self::Settled => 2,
            Self::Combined => 3,
            Self::Joined => 4,
            Self::Whole => 5,
            Self::Entered => 6,
            Self::Sent(parcel) => 7 + 2 * parcel as usize,
            Self::Taken(parcel) => 8 + 2 * parcel as usize,
        }
    }
}

/// The ranks whose counts an op waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// Those of the other ranks along an axis.
    Along(Axis),
    /// Those of all ranks.
    All,
    /// That of the rank on another pipeline stage.
    At(usize),
}

/// Counts, and how often they have been raised: 0 is before the first pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    pub whose: Whose,
    pub count: Count,
    pub times: usize,
}

/// How far a rank is, as it queues its ops.
pub(super) struct Told {
    /// How often it has raised each of its counts.
    raised: [usize; Count::LEN],
    /// For each unit, its last publication; for each bucket, its last offer and settle.
    published: Vec<usize>,
    offered: Vec<usize>,
    settled: Vec<usize>,
    /// The last offer out of each staging: of slots, and then of buckets that have one of their own.
    staged: Vec<usize>,
    /// The last settle into each place for partial sums.
    partials: [usize; STAGING_SLOTS],
    /// The last parcel of each kind in each slot that they leave from.
    left: [[usize; OUTGOING_SLOTS]; Parcel::ALL.len()],
}

impl Told {
    pub fn new(plan: &Plan) -> Self {
        let buckets = plan.buckets.len();
        Self {
            raised: [0; Count::LEN],
            published: vec![0; plan.units.len()],
            offered: vec![0; buckets],
            settled: vec![0; buckets],
            staged: vec![0; STAGING_SLOTS + buckets],
            partials: [0; STAGING_SLOTS],
            left: [[0; OUTGOING_SLOTS]; Parcel::ALL.len()],
        }
    }

    fn raise(&mut self, count: Count) -> usize {
        self.raised[count.index()] += 1;
        self.raised[count.index()]
    }

    fn raised(&self, count: Count) -> usize {
        self.raised[count.index()]
    }

    /// The count that an op raises before it waits for those of others.
    pub fn first(&mut self, op: Op) -> Option<Count> {
        let count = match op {
            Op::Spread { axis: Axis::Replica, .. } => Count::Joined,
            Op::Spread { .. } => Count::Whole,
            Op::Agree => Count::Entered,
            _ => return None,
        };
        self.raise(count);
        Some(count)
    }

    /// The signals that an op waits for, of the rank of pipeline stage `stage`.
    pub fn awaits(&mut self, plan: &Plan, stage: usize, op: Op, position: &Position) -> [Option<Awaited>; 2] {
        let along = |axis, count, times| Some(Awaited { whose: Whose::Along(axis), count, times });
        let first = match op {
            // Publications come in one order on the ranks along `zero`, so all of them come to the count that this rank had then.
            Op::Gather { unit, .. } => along(Axis::Zero, Count::Published, self.published[unit]),
            Op::Claim { bucket } => along(Axis::Zero, Count::Settled, self.staged[staging_of(plan, bucket)]),
            Op::Settle { bucket, .. } => {
                let next = self.raised(Count::Settled) + 1;
                let partial = usize::from(plan.buckets[bucket].partial > 0);
                let combined =
                    plan.config.has_partials().then(|| core::mem::replace(&mut self.partials[partial], next));
                let is_combined = combined.and_then(|times| along(Axis::Replica, Count::Combined, times));
                return [along(Axis::Zero, Count::Offered, self.offered[bucket]), is_combined];
            }
            Op::Combine { bucket, .. } => along(Axis::Replica, Count::Settled, self.settled[bucket]),
            Op::Spread { axis: Axis::Replica, .. } => along(Axis::Replica, Count::Joined, self.raised(Count::Joined)),
            Op::Spread { axis, .. } => along(axis, Count::Whole, self.raised(Count::Whole)),
            Op::Agree => Some(Awaited { whose: Whose::All, count: Count::Entered, times: self.raised(Count::Entered) }),
            Op::Clear { parcel } => {
                let whose = Whose::At(plan.parcel_receiver(parcel, stage));
                let times = self.left[parcel as usize][position.outgoing(parcel)];
                Some(Awaited { whose, count: Count::Taken(parcel), times })
            }
            Op::Receive { parcel, .. } => {
                let whose = Whose::At(plan.parcel_sender(parcel, stage));
                let times = self.raised(Count::Taken(parcel)) + 1;
                Some(Awaited { whose, count: Count::Sent(parcel), times })
            }
            _ => None,
        };
        [first, None]
    }

    /// The counts that an op raises when it is done.
    pub fn ends(&mut self, plan: &Plan, op: Op, position: &Position) -> [Option<Count>; 2] {
        match op {
            Op::Update { unit } => [self.publish(plan, unit), None],
            Op::Reduce { bucket, .. } => {
                let times = self.raise(Count::Offered);
                (self.offered[bucket], self.staged[staging_of(plan, bucket)]) = (times, times);
                [Some(Count::Offered), None]
            }
            Op::Settle { bucket, .. } => {
                self.settled[bucket] = self.raise(Count::Settled);
                [Some(Count::Settled), None]
            }
            Op::Combine { .. } => {
                self.raise(Count::Combined);
                [Some(Count::Combined), None]
            }
            Op::Send { parcel, .. } => {
                self.left[parcel as usize][position.outgoing(parcel)] = self.raise(Count::Sent(parcel));
                [Some(Count::Sent(parcel)), None]
            }
            Op::Receive { parcel, unit, .. } => {
                self.raise(Count::Taken(parcel));
                let is_new = parcel == Parcel::TiedParameters;
                [Some(Count::Taken(parcel)), is_new.then(|| self.publish(plan, unit)).flatten()]
            }
            _ => [None, None],
        }
    }

    fn publish(&mut self, plan: &Plan, unit: usize) -> Option<Count> {
        if !plan.config.shards_optimizer() {
            return None;
        }
        self.published[unit] = self.raise(Count::Published);
        Some(Count::Published)
    }
}

fn staging_of(plan: &Plan, bucket: usize) -> usize {
    plan.buckets[bucket].slot.unwrap_or(STAGING_SLOTS + bucket)
}
