//! Messages: proves that messages between ranks of different hosts are received and hold what is needed, although each
//! rank posts by itself. Reads the postings, but shares no code with the module that makes them. Derives the needs of
//! ops from the places that they read (`crate::place::accesses`).
//!
//! It shows for every pass:
//!
//! - For each sender, receiver and tag, as many messages are sent as are received, and both ends of each have the same
//!   length (here). MPI lets no message overtake another one with its tag, so these are the pairs that it makes.
//! - Messages bring everything that an op reads from another host: each receive is posted by the time the op begins,
//!   into the place where the op looks, and its sender sends the content that the op needs (`needs`).
//! - When a message is sent, its content lies in its place, and nothing writes there before the rank has waited until the
//!   message has left. A place into which a message is received is neither used nor received into again until it has arrived
//!   (`places`). For slots that ranks of a host hold in common, this is shown only for the ops of the receiving rank.
//! - No message need be buffered: the pass ends even if each message ends only once both sides have posted it
//!   (`replay`).
//!
//! Each pass pairs its own messages, so consecutive passes do too. Numbers that ranks exchange between passes are
//! posted like those of `Agree`, and are not walked here.
//!
//! The waits of the runtime before it overwrites something are stated again (`leaving`), as in `crate::execution`.

mod leaving;
mod needs;
mod places;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Flaw, Ranks, Spot};
use crate::mesh::Coordinates;
use crate::place::{Accesses, Place, Position};
use crate::plan::Plan;
use crate::postings::{Moment, Payload, PostingBatch, Postings, is_for_ops};
use crate::schedule::Op;

/// One end of a message, as a rank posts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    /// Index of the op in which it is posted.
    op: usize,
    moment: Moment,
    batch: PostingBatch,
    tag: u16,
    payload: Payload,
}

impl Posting {
    /// The place of its bytes, unless it is numbers.
    fn place(&self) -> Option<Place> {
        match self.payload {
            Payload::At(place) => Some(place),
            Payload::Numbers { .. } => None,
        }
    }

    /// Whether it is posted before op `index` waits for what other ranks send.
    fn is_posted_by(&self, index: usize) -> bool {
        self.op < index || self.op == index && self.moment != Moment::End
    }
}

/// A function that returns the messages that a rank posts in the ops of a pass, in order: [`posted`], or a variant with
/// an error that must be found.
pub(super) type Posted<'f> = dyn Fn(&Ranks, usize, bool) -> Vec<Posting> + 'f;

/// The messages that a rank posts in the ops of a pass. Places are those of a decoding walk if it `decodes`.
pub(super) fn posted(ranks: &Ranks, rank: usize, decodes: bool) -> Vec<Posting> {
    of_ops(ranks.plan, rank, ranks.ops[rank], decodes)
}

fn of_ops(plan: &Plan, rank: usize, ops: &[Op], decodes: bool) -> Vec<Posting> {
    let at = plan.config.mesh.coordinates(rank);
    let (mut position, mut postings) = (start(plan, decodes), Postings::new(plan.buckets.len()));
    let mut all = Vec::new();
    for (index, &op) in ops.iter().enumerate() {
        for moment in Moment::ALL {
            postings.post(plan, at, moment, op, &mut |batch| {
                let tag = batch.tag();
                batch.messages(plan, at, &position, &mut |payload| {
                    all.push(Posting { op: index, moment, batch, tag, payload });
                });
            });
        }
        position.pass(op);
    }
    all
}

fn start(plan: &Plan, decodes: bool) -> Position {
    let mut position = Position::new(plan.units.len());
    position.is_decoding = decodes;
    position
}

/// All postings of a pass.
struct Messages<'a> {
    ranks: &'a Ranks<'a>,
    accesses: &'a Accesses<'a>,
    decodes: bool,
    /// For each rank, its postings.
    of: Vec<Vec<Posting>>,
    /// For each posting, the number of its other end among the postings of its peer.
    others: Vec<Vec<usize>>,
}

/// Proves all this for a pass, with the postings of `posted` and the places of `accesses`. Ranks of one host post
/// nothing to one another.
pub(super) fn messages(ranks: &Ranks, accesses: &Accesses, decodes: bool, posted: &Posted) -> Result<(), Flaw> {
    if !ranks.plan.config.sends_messages() {
        return Ok(());
    }
    let of: Vec<Vec<Posting>> = (0..ranks.ops.len()).map(|rank| posted(ranks, rank, decodes)).collect();
    let mut messages = Messages { ranks, accesses, decodes, of, others: Vec::new() };
    messages.others = messages.pair()?;
    let needs = needs::needs(&messages)?;
    places::places(&messages, &needs)?;
    replay::replay(&messages, &needs)
}

impl Messages<'_> {
    fn plan(&self) -> &Plan<'_> {
        self.ranks.plan
    }

    fn at(&self, rank: usize) -> Coordinates {
        self.plan().config.mesh.coordinates(rank)
    }

    /// The other end of a posting.
    fn other(&self, rank: usize, index: usize) -> Posting {
        self.of[self.of[rank][index].batch.peer][self.others[rank][index]]
    }

    /// Pairs the messages that are sent with those that are received, and proves that all are paired.
    fn pair(&self) -> Result<Vec<Vec<usize>>, Flaw> {
        // By sender, receiver and tag.
        let mut channels: BTreeMap<(usize, usize, u16), [Vec<usize>; 2]> = BTreeMap::new();
        for (rank, postings) in self.of.iter().enumerate() {
            if let Some(index) =
                postings.windows(2).position(|pair| (pair[1].op, pair[1].moment) < (pair[0].op, pair[0].moment))
            {
                return Err(self.flaw("a rank posts messages in another order than its ops", &[(rank, index + 1)]));
            }
            for (index, &Posting { batch, tag, .. }) in postings.iter().enumerate() {
                if !is_for_ops(tag) {
                    return Err(self.flaw("a message has a tag that is not for ops", &[(rank, index)]));
                }
                let (sender, receiver) = if batch.is_sent { (rank, batch.peer) } else { (batch.peer, rank) };
                channels.entry((sender, receiver, tag)).or_default()[usize::from(!batch.is_sent)].push(index);
            }
        }
        let mut others: Vec<Vec<usize>> = self.of.iter().map(|postings| vec![usize::MAX; postings.len()]).collect();
        for ((sender, receiver, _), [sent, received]) in channels {
            for nth in 0..sent.len().max(received.len()) {
                let (Some(&from), Some(&to)) = (sent.get(nth), received.get(nth)) else {
                    let sent = sent.get(nth).map(|&index| (sender, index));
                    let single = sent.or_else(|| received.get(nth).map(|&index| (receiver, index)));
                    return Err(self.flaw("only one side of a message is posted", &Vec::from_iter(single)));
                };
                if !self.fit(self.of[sender][from], self.of[receiver][to]) {
                    let ends = [(sender, from), (receiver, to)];
                    return Err(self.flaw("a message is not what its receiver expects", &ends));
                }
                (others[sender][from], others[receiver][to]) = (to, from);
            }
        }
        Ok(others)
    }

    /// Whether two ends belong to one message: they have the same length, and are for the same op.
    fn fit(&self, sent: Posting, received: Posting) -> bool {
        let [from, to] = [sent, received].map(|posting| posting.payload.bytes(self.plan()));
        from == to
            && match (sent.batch.op, received.batch.op) {
                (Op::Gather { unit: a, .. }, Op::Gather { unit: b, .. }) => a == b,
                (Op::Send { parcel: a, .. }, Op::Receive { parcel: b, .. }) => a == b,
                (Op::Agree, Op::Agree) => sent.payload == received.payload,
                (a, b) => a == b,
            }
    }

    /// A flaw of messages. Each end is given as the rank that posts it and the number of the posting.
    fn flaw(&self, rule: &str, ends: &[(usize, usize)]) -> Flaw {
        self.ranks.flaw(rule, ends.iter().map(|&(rank, index)| self.spot(rank, index)).collect())
    }

    fn spot(&self, rank: usize, index: usize) -> Spot {
        let Posting { op, batch: PostingBatch { is_sent, peer, op: of }, tag, payload, .. } = self.of[rank][index];
        let verb = if is_sent { "sends to" } else { "receives from" };
        let bytes = payload.bytes(self.plan());
        self.ranks.spot(rank, op, format!("{verb} rank {peer} {bytes} bytes of {payload:?} for {of:?}, by tag {tag}"))
    }
}
