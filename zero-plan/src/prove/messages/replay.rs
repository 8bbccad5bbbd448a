//! Replay: repeats the execution by which `crate::execution` shows that a pass ends, with messages that are not
//! buffered: each ends when both of its ends are posted.
//!
//! An op waits here for the messages that it receives, for those that must have left before it, and for everything that
//! it waits for in that execution, where an event has happened once all ranks have begun it. The runtime waits for
//! nothing else: for counts within a host, and for messages between hosts. A rank reaches its postings by itself, so a
//! waiting rank does not keep another from posting, and these rules are monotone as well. So one execution that ends
//! proves that all end, and that no event of that execution happens before its messages have arrived.

use super::leaving::Leaving;
use super::needs::MessageNeed;
use super::{Flaw, Messages, Posting};
use crate::execution::execute;
use crate::mesh::Axis;
use crate::postings::Moment;
use crate::schedule::Op;

/// The progress of a rank.
struct ReplayedRank {
    /// Its next op, or the one that it is in.
    op: usize,
    is_inside: bool,
    /// How many of its messages it has posted.
    posted: usize,
    /// For each of its ops, the messages that must leave before the op posts anything.
    leave: Vec<Vec<usize>>,
    /// For each of its ops, the messages to ranks of its host that must arrive before the op ends.
    come: Vec<Vec<(usize, usize)>>,
}

/// Proves this for a pass.
pub(super) fn replay(messages: &Messages, needs: &[Vec<Option<MessageNeed>>]) -> Result<(), Flaw> {
    let ranks = messages.ranks;
    let gathers: Vec<Gathers> = (0..messages.of.len()).map(|rank| Gathers::of(messages, rank)).collect();
    let of_rank = |rank| ReplayedRank {
        op: 0,
        is_inside: false,
        posted: 0,
        leave: leave(messages, rank),
        come: come(messages, needs, &gathers, rank),
    };
    let mut world = ReplayWorld { messages, ranks: (0..messages.of.len()).map(of_rank).collect() };
    let mut order = Vec::new();
    let mut note = |rank: usize, _: Op| {
        order.push(rank);
        0
    };
    execute(ranks.plan, &ranks.groups, ranks.ops, &mut note)
        .map_err(|stuck| crate::prove::deadlock(ranks.plan, ranks.pass, ranks.ops, &stuck))?;
    order.into_iter().try_for_each(|rank| world.pass(rank))
}

/// For each op of a rank, the messages that it waits for to leave.
fn leave(messages: &Messages, rank: usize) -> Vec<Vec<usize>> {
    let mut leave: Vec<Vec<usize>> = Vec::new();
    let (ops, postings) = (messages.ranks.ops[rank], &messages.of[rank]);
    Leaving::walk(messages.plan(), ops, postings, messages.decodes, &mut |left| {
        leave.push(left.into_iter().map(|sent| sent.index).collect());
    });
    leave
}

/// The gathers of a rank: for each, the number of messages that it receives for the gathers up to this one; and all of
/// these messages.
struct Gathers {
    behind: Vec<usize>,
    received: Vec<usize>,
}

impl Gathers {
    fn of(messages: &Messages, rank: usize) -> Self {
        let postings = messages.of[rank].iter().enumerate();
        let is_received = |posting: &Posting| !posting.batch.is_sent && matches!(posting.batch.op, Op::Gather { .. });
        let received: Vec<usize> =
            postings.filter(|(_, posting)| is_received(posting)).map(|(index, _)| index).collect();
        let ops = messages.ranks.ops[rank].iter().enumerate().filter(|(_, op)| matches!(op, Op::Gather { .. }));
        let behind = |(at, _)| received.partition_point(|&index| messages.of[rank][index].op <= at);
        Self { behind: ops.map(behind).collect(), received }
    }
}

/// For each op of a rank, the messages whose arrival it waits for: those that are received for it; at the end of a
/// gather, all messages of this and earlier gathers to any rank of its host along `zero`; likewise those of a spread
/// along its axis; and in an agreement all numbers for any rank of its host.
fn come(
    messages: &Messages,
    needs: &[Vec<Option<MessageNeed>>],
    gathers: &[Gathers],
    rank: usize,
) -> Vec<Vec<(usize, usize)>> {
    let (config, ops) = (&messages.plan().config, messages.ranks.ops);
    let here = || (0..ops.len()).filter(|&other| config.mesh.node(other) == config.mesh.node(rank));
    let own = messages.at(rank);
    let host_peers_along = |axis: Axis| -> Vec<usize> {
        let is_in_line = |other: &usize| messages.at(*other) == own.with(axis, messages.at(*other).along(axis));
        let is_host_peer = |other: &usize| *other == rank || config.ranks_per_host(axis) > 1 && is_in_line(other);
        here().filter(is_host_peer).collect()
    };
    let peers = host_peers_along(Axis::Zero);
    let mut come: Vec<Vec<(usize, usize)>> = vec![Vec::new(); ops[rank].len()];
    for (index, need) in needs[rank].iter().enumerate() {
        if let Some(need) = need {
            come[need.op].push((rank, index));
        }
    }
    // The last gather of each unit; and for each host peer, how many of its messages for gathers were already waited for.
    let (mut begun, mut count) = (vec![None; messages.plan().units.len()], 0);
    let mut waited: Vec<usize> = vec![0; peers.len()];
    let mut spreads = [0; Axis::ALL.len()];
    for (at, &op) in ops[rank].iter().enumerate() {
        match op {
            Op::Gather { unit, .. } => {
                begun[unit] = Some(count);
                count += 1;
            }
            Op::Wait { unit } => {
                for (&peer, waited) in peers.iter().zip(&mut waited) {
                    let Gathers { behind, received } = &gathers[peer];
                    let Some(&end) = begun[unit].and_then(|nth: usize| behind.get(nth)) else { continue };
                    come[at].extend(received[end.min(*waited)..end].iter().map(|&index| (peer, index)));
                    *waited = end.max(*waited);
                }
            }
            Op::Spread { axis, .. } => {
                let is_spread = |op: &Op| matches!(op, Op::Spread { axis: other, .. } if *other == axis);
                for peer in host_peers_along(axis).into_iter().filter(|&peer| peer != rank) {
                    let mut all = (0..ops[peer].len()).filter(|&op| is_spread(&ops[peer][op]));
                    let Some(same) = all.nth(spreads[axis as usize]) else { continue };
                    let is_for_it = |need: &MessageNeed| need.op == same;
                    let shares = (0..needs[peer].len()).filter(|&it| needs[peer][it].as_ref().is_some_and(is_for_it));
                    come[at].extend(shares.map(|index| (peer, index)));
                }
                spreads[axis as usize] += 1;
            }
            Op::Agree => {
                for peer in here() {
                    let is_number = |need: &MessageNeed| need.read.is_none();
                    let numbers =
                        (0..needs[peer].len()).filter(|&index| needs[peer][index].as_ref().is_some_and(is_number));
                    come[at].extend(numbers.map(|index| (peer, index)));
                }
            }
            _ => {}
        }
    }
    come
}

struct ReplayWorld<'a> {
    messages: &'a Messages<'a>,
    ranks: Vec<ReplayedRank>,
}

impl ReplayWorld<'_> {
    /// Whether both ends of a message are posted.
    fn is_complete(&self, (rank, index): (usize, usize)) -> bool {
        let peer = self.messages.of[rank][index].batch.peer;
        index < self.ranks[rank].posted && self.messages.others[rank][index] < self.ranks[peer].posted
    }

    /// Posts the messages of a rank's op up to a moment.
    fn post(&mut self, rank: usize, last: Moment) {
        let ReplayedRank { op, posted, .. } = &mut self.ranks[rank];
        let next = |posted: usize| self.messages.of[rank].get(posted);
        while next(*posted).is_some_and(|posting| posting.op == *op && posting.moment <= last) {
            *posted += 1;
        }
    }

    /// A message that a rank waits for, before it enters its next op or within the op.
    fn waits_for(&self, rank: usize) -> Option<(usize, usize)> {
        let ReplayedRank { op, is_inside, leave, come, .. } = &self.ranks[rank];
        if *is_inside {
            return come[*op].iter().copied().find(|&message| !self.is_complete(message));
        }
        leave.get(*op)?.iter().map(|&index| (rank, index)).find(|&message| !self.is_complete(message))
    }

    /// Lets a rank enter its next op, if it is not in it yet and need not wait. Returns whether it did.
    fn enter(&mut self, rank: usize) -> bool {
        let may = !self.ranks[rank].is_inside && self.waits_for(rank).is_none();
        if may {
            self.ranks[rank].is_inside = true;
            self.post(rank, Moment::Exchange);
        }
        may
    }

    /// Runs the next op of a rank. If it has to wait, other ranks enter theirs first.
    fn pass(&mut self, rank: usize) -> Result<(), Flaw> {
        self.enter(rank);
        if !self.ranks[rank].is_inside || self.waits_for(rank).is_some() {
            while (0..self.ranks.len()).filter(|&rank| self.enter(rank)).count() > 0 {}
        }
        if let Some((whose, index)) = self.waits_for(rank) {
            let op = self.ranks[rank].op;
            let waits =
                self.messages.ranks.spot(rank, op, "waits for a message that is not posted on both sides by then");
            let (peer, other) = (self.messages.of[whose][index].batch.peer, self.messages.others[whose][index]);
            let ends = [waits, self.messages.spot(whose, index), self.messages.spot(peer, other)];
            return Err(self.messages.ranks.flaw("an op waits for a message that cannot have arrived", ends.into()));
        }
        self.post(rank, Moment::End);
        let own = &mut self.ranks[rank];
        (own.op, own.is_inside) = (own.op + 1, false);
        Ok(())
    }
}
