//! Postings: the messages between ranks of different hosts, op by op, with their peers, tags, places and order. The
//! runtime posts exactly these, and `prove` shows that they match. Never knows when a message arrives, nor anything of
//! MPI except its largest tag.

use std::collections::VecDeque;

use crate::footprint::exchanged_bytes;
use crate::mesh::{Axis, Coordinates};
use crate::place::{Arrival, Place, Position, are_counterparts, arrivals_from};
use crate::plan::Plan;
use crate::schedule::Op;

/// The moment of an op at which something is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// When it begins, before it waits for messages of other ranks.
    Begin,
    /// When ranks exchange numbers, after all earlier messages of this rank have left.
    Exchange,
    /// When it ends.
    End,
}

impl Moment {
    /// All of them, in their order in an op.
    pub const ALL: [Self; 3] = [Self::Begin, Self::Exchange, Self::End];
}

/// The content of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The bytes in a place of the rank that posts it.
    At(Place),
    /// The numbers of a rank in an exchange among all ranks.
    Numbers {
        /// The rank.
        of: usize,
    },
}

impl Payload {
    /// Its length in bytes.
    pub const fn bytes(self, plan: &Plan) -> usize {
        match self {
            Payload::At(place) => place.len_bytes,
            Payload::Numbers { .. } => exchanged_bytes(plan.agreed_values()),
        }
    }
}

/// The messages that one rank sends to another one, or receives from it, for one op. They are posted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostingBatch {
    /// Whether they are sent; otherwise they are received.
    pub is_sent: bool,
    /// The rank of another host that they go to, or come from.
    pub peer: usize,
    /// The op that needs them or, for a parcel that is sent, the op that sends it.
    pub op: Op,
}

/// Kinds of tags. Messages of ops of one kind about one unit or bucket have the same tag, and arrive in the order in
/// which they are sent.
const TAG_KINDS: usize = 10;
/// The largest tag that every MPI supports.
pub const LARGEST_TAG: u16 = 32767;
/// Units or buckets that have their own tags. Further ones share tags, as messages of one tag stay in order.
const TAGS: usize = LARGEST_TAG as usize / TAG_KINDS;
/// The kind of the numbers that ranks exchange, which have a single tag. Other tags of this kind belong to no op.
const NUMBERS: usize = 9;
/// The tag of questions about clocks.
pub const CLOCK_TAG: u16 = (NUMBERS + TAG_KINDS) as u16;
/// The tag of reports of long waits.
pub const REPORT_TAG: u16 = (NUMBERS + 2 * TAG_KINDS) as u16;

/// Whether a message of an op may have a tag.
pub const fn is_for_ops(tag: u16) -> bool {
    tag <= LARGEST_TAG && (tag as usize == NUMBERS || tag as usize % TAG_KINDS != NUMBERS)
}

impl PostingBatch {
    /// The tag of its messages, which is the same on both ranks.
    pub const fn tag(&self) -> u16 {
        let (kind, of) = match self.op {
            Op::Gather { unit, .. } => (0, unit),
            Op::Settle { bucket, .. } => (1, bucket),
            Op::Combine { bucket, .. } => (2, bucket),
            Op::Spread { bucket, axis: Axis::Replica } => (3, bucket),
            Op::Spread { bucket, .. } => (4, bucket),
            Op::Send { parcel, .. } | Op::Receive { parcel, .. } => (5 + parcel as usize, 0),
            _ => (NUMBERS, 0),
        };
        (kind + TAG_KINDS * (of % TAGS)) as u16
    }

    /// Calls back for each of its messages on the rank at `at`, in order.
    pub fn messages(&self, plan: &Plan, at: Coordinates, position: &Position, visit: &mut dyn FnMut(Payload)) {
        let (mesh, own) = (&plan.config.mesh, position.places(plan.places(at)));
        let peer = mesh.coordinates(self.peer);
        match self.op {
            Op::Agree => visit(Payload::Numbers { of: if self.is_sent { mesh.rank(at) } else { self.peer } }),
            Op::Send { parcel, unit, .. } => {
                visit(Payload::At(own.outgoing(parcel, unit, position.outgoing(parcel))));
            }
            op if self.is_sent => {
                let theirs = position.places(plan.places(peer));
                let mut send = |Arrival { source, .. }| visit(Payload::At(source));
                arrivals_from(plan, op, position, &theirs, at, &mut send);
            }
            op => arrivals_from(plan, op, position, &own, peer, &mut |Arrival { to, .. }| visit(Payload::At(to))),
        }
    }
}

/// The messages that one rank posts while it walks its schedule.
#[derive(Clone, Debug)]
pub struct Postings {
    /// The settles of buckets that are on their way. Terms are received only for the first, because all arrive in one
    /// place that buckets take turns with.
    unsettled: VecDeque<Op>,
}

impl Postings {
    /// The state before the first op, for a plan with this many buckets. Nothing is allocated later.
    pub fn new(buckets: usize) -> Self {
        Self { unsettled: VecDeque::with_capacity(buckets) }
    }

    /// The settle whose terms are received now, if there is one.
    pub fn receives_terms_for(&self) -> Option<Op> {
        self.unsettled.front().copied()
    }

    /// Calls back for everything that the rank at `at` posts at a moment of `op`, in order. Must be called once for
    /// each moment of each op of a schedule, in order.
    pub fn post(&mut self, plan: &Plan, at: Coordinates, moment: Moment, op: Op, visit: &mut dyn FnMut(PostingBatch)) {
        match (moment, op) {
            (Moment::Begin, Op::Gather { .. } | Op::Spread { .. }) => {
                each_peer(plan, at, op, false, visit);
                each_peer(plan, at, op, true, visit);
            }
            (Moment::Begin, Op::Combine { .. } | Op::Receive { .. }) => each_peer(plan, at, op, false, visit),
            (Moment::Exchange, Op::Agree) => {
                let (mesh, rank) = (&plan.config.mesh, plan.config.mesh.rank(at));
                for node in (0..mesh.nodes).filter(|&node| node != mesh.node(rank)) {
                    let peer = node * mesh.ranks_per_node() + rank % mesh.ranks_per_node();
                    visit(PostingBatch { is_sent: false, peer, op });
                    visit(PostingBatch { is_sent: true, peer, op });
                }
            }
            (Moment::End, Op::Reduce { bucket, round }) if !plan.config.sums_on_hosts(Axis::Zero) => {
                self.offer(plan, at, Op::Settle { bucket, round }, visit);
            }
            (Moment::End, Op::Subtotal { bucket, round, axis: Axis::Zero }) => {
                self.offer(plan, at, Op::Settle { bucket, round }, visit);
            }
            (Moment::End, Op::Subtotal { bucket, round, .. }) => {
                each_peer(plan, at, Op::Combine { bucket, round }, true, visit);
            }
            (Moment::End, Op::Settle { bucket, round }) => {
                self.unsettled.pop_front();
                if let Some(settle) = self.receives_terms_for() {
                    each_peer(plan, at, settle, false, visit);
                }
                if plan.config.mesh.replica > 1 && !plan.config.sums_on_hosts(Axis::Replica) {
                    each_peer(plan, at, Op::Combine { bucket, round }, true, visit);
                }
            }
            (Moment::End, Op::Send { .. }) => each_peer(plan, at, op, true, visit),
            _ => {}
        }
    }

    /// The terms of a settle are ready: sends them, and receives terms of other ranks unless another settle comes first.
    fn offer(&mut self, plan: &Plan, at: Coordinates, settle: Op, visit: &mut dyn FnMut(PostingBatch)) {
        self.unsettled.push_back(settle);
        if self.unsettled.len() == 1 {
            each_peer(plan, at, settle, false, visit);
        }
        each_peer(plan, at, settle, true, visit);
    }
}

/// Calls back for a batch with each rank of another host to which the rank at `own` sends bytes in an op, or from which
/// it receives some.
pub(crate) fn each_peer(plan: &Plan, own: Coordinates, op: Op, is_sent: bool, visit: &mut dyn FnMut(PostingBatch)) {
    let config = &plan.config;
    let only = |pipeline: usize| (pipeline, pipeline + 1);
    let (first, end) = match op {
        Op::Receive { parcel, .. } => only(plan.parcel_sender(parcel, own.pipeline)),
        Op::Send { parcel, .. } => only(plan.parcel_receiver(parcel, own.pipeline)),
        op => (0, op.traits().axis.map_or(0, |axis| config.mesh.len(axis))),
    };
    for index in first..end {
        let other = own.with(op.traits().axis.unwrap_or(Axis::Pipeline), index);
        let peer = config.mesh.rank(other);
        if are_counterparts(config, op, own, other) && !config.reaches(config.mesh.rank(own), peer) {
            visit(PostingBatch { is_sent, peer, op });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Parcel;

    #[test]
    fn tags_are_those_that_every_mpi_has_and_differ_by_kind() {
        let (bucket, round, slot, micro_batch) = (40_000, 0, 0, 0);
        let mut ops = vec![
            Op::Gather { unit: bucket, slot },
            Op::Settle { bucket, round },
            Op::Combine { bucket, round },
            Op::Spread { bucket, axis: Axis::Zero },
            Op::Spread { bucket, axis: Axis::Replica },
            Op::Agree,
        ];
        ops.extend(Parcel::ALL.map(|parcel| Op::Receive { parcel, unit: 0, micro_batch, slot }));
        let tag = |op| PostingBatch { is_sent: false, peer: 0, op }.tag();
        let mut tags: Vec<u16> = ops.into_iter().map(tag).collect();
        assert!(tags.iter().all(|&tag| is_for_ops(tag)), "{tags:?}");
        assert!([CLOCK_TAG, REPORT_TAG, LARGEST_TAG + 1].into_iter().all(|tag| !is_for_ops(tag)));
        assert_ne!(CLOCK_TAG, REPORT_TAG);
        tags.sort_unstable();
        assert!(tags.windows(2).all(|pair| pair[0] < pair[1]), "{tags:?}");
    }
}
