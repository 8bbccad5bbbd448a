//! Leaving: the messages that a rank has sent and not waited for yet. States again which ops wait until some of them
//! have left: each waits for a count, which grows in the order in which messages of one kind were posted.

use super::Posting;
use crate::mesh::Axis;
use crate::place::Position;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// Kinds of messages that have one count each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountKind {
    Sum,
    Combined,
    Parcel(Parcel),
    /// Gathers, spreads and numbers, for which only an exchange waits.
    Given,
}

impl CountKind {
    fn of(op: Op) -> Self {
        match op {
            Op::Settle { .. } => Self::Sum,
            Op::Combine { .. } => Self::Combined,
            Op::Send { parcel, .. } => Self::Parcel(parcel),
            _ => Self::Given,
        }
    }
}

/// A message that may not have left yet.
#[derive(Clone, Copy)]
pub(super) struct SentMessage {
    /// The number of the posting on its rank.
    pub index: usize,
    pub posting: Posting,
    /// The slot that it leaves from, if it is a parcel.
    slot: usize,
}

/// Messages that have not been waited for, in the order in which they were posted.
#[derive(Clone, Default)]
pub(super) struct Leaving {
    pub open: Vec<SentMessage>,
}

impl Leaving {
    /// Walks the ops of a pass and their postings, and calls back for each op with the messages that have left by then.
    pub fn walk(
        plan: &Plan,
        ops: &[Op],
        postings: &[Posting],
        decodes: bool,
        left: &mut dyn FnMut(Vec<SentMessage>),
    ) -> Self {
        let (mut leaving, mut position, mut next) = (Self::default(), super::start(plan, decodes), 0);
        for (at, &op) in ops.iter().enumerate() {
            left(leaving.wait(plan, op, &position));
            while let Some(&posting) = postings.get(next).filter(|posting| posting.op == at) {
                if posting.batch.is_sent {
                    leaving.send(next, posting, &position);
                }
                next += 1;
            }
            position.pass(op);
        }
        leaving
    }

    pub fn send(&mut self, index: usize, posting: Posting, position: &Position) {
        let slot = match CountKind::of(posting.batch.op) {
            CountKind::Parcel(parcel) => position.outgoing(parcel),
            _ => 0,
        };
        self.open.push(SentMessage { index, posting, slot });
    }

    /// Takes out the messages that have left once `op` has waited, before it posts or touches anything.
    pub fn wait(&mut self, plan: &Plan, op: Op, position: &Position) -> Vec<SentMessage> {
        let (buckets, config) = (plan.buckets, &plan.config);
        let shares_staging =
            |a: usize, b: usize| a == b || buckets[a].slot.is_some() && buckets[a].slot == buckets[b].slot;
        let shares_partial = |a: usize, b: usize| buckets[a].partial_slot() == buckets[b].partial_slot();
        match op {
            // If hosts make parts of a sum, nothing leaves from the staging.
            Op::Claim { bucket } if !config.sums_on_hosts(Axis::Zero) => {
                self.take(CountKind::Sum, &|sent| shares_staging(sent, bucket))
            }
            Op::Subtotal { bucket, axis, .. } => {
                let kind = if axis == Axis::Zero { CountKind::Sum } else { CountKind::Combined };
                self.take(kind, &|sent| shares_partial(sent, bucket))
            }
            Op::Settle { bucket, .. } if config.has_partials() && !config.sums_on_hosts(Axis::Replica) => {
                self.take(CountKind::Combined, &|sent| shares_partial(sent, bucket))
            }
            Op::Spread { bucket, axis: Axis::Zero } if !config.sums_on_hosts(Axis::Zero) => {
                self.take(CountKind::Sum, &|sent| sent == bucket)
            }
            Op::Spread { bucket, axis: Axis::Replica } if !config.sums_on_hosts(Axis::Replica) => {
                self.take(CountKind::Combined, &|sent| sent == bucket)
            }
            Op::Clear { parcel } => {
                let slot = position.outgoing(parcel);
                let is_there = |sent: &mut SentMessage| {
                    CountKind::of(sent.posting.batch.op) == CountKind::Parcel(parcel) && sent.slot == slot
                };
                self.open.extract_if(.., is_there).collect()
            }
            Op::Agree => core::mem::take(&mut self.open),
            _ => Vec::new(),
        }
    }

    /// Takes out the last message of a kind whose bucket fulfils `is_such`, and all messages of its kind before it.
    fn take(&mut self, kind: CountKind, is_such: &dyn Fn(usize) -> bool) -> Vec<SentMessage> {
        let is_of_kind = |sent: &SentMessage| CountKind::of(sent.posting.batch.op) == kind;
        let is_last = |sent: &SentMessage| is_of_kind(sent) && sent.posting.batch.op.bucket().is_some_and(is_such);
        let Some(last) = self.open.iter().rposition(is_last) else { return Vec::new() };
        self.open.extract_if(..=last, |sent| is_of_kind(sent)).collect()
    }
}
