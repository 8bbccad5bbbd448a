//! Needs: finds the op that waits for each message that a rank receives, and proves that messages bring everything that
//! the op reads from other hosts.

use std::collections::HashSet;

use super::{Flaw, Messages, Posting};
use crate::place::{Access, Place, Position};
use crate::postings::{Moment, Payload};
use crate::schedule::Op;

/// The need for which a message is received.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct MessageNeed {
    /// Index of the op that waits for it.
    pub op: usize,
    /// The op's read of the sender's place; none if the message brings numbers.
    pub read: Option<Access>,
}

/// Pairs of a host and a rank whose numbers arrive there.
type Numbers = HashSet<(usize, usize)>;

/// For each rank and each of its postings, the need for which it is received. No op waits for an empty message.
pub(super) fn needs(messages: &Messages) -> Result<Vec<Vec<Option<MessageNeed>>>, Flaw> {
    let mesh = &messages.plan().config.mesh;
    let mut come = Numbers::new();
    for (rank, postings) in messages.of.iter().enumerate() {
        for posting in postings.iter().filter(|posting| !posting.batch.is_sent && posting.moment == Moment::Exchange) {
            if let Payload::Numbers { of } = posting.payload {
                come.insert((mesh.node(rank), of));
            }
        }
    }
    (0..messages.of.len()).map(|rank| of_rank(messages, &come, rank)).collect()
}

fn of_rank(messages: &Messages, come: &Numbers, rank: usize) -> Result<Vec<Option<MessageNeed>>, Flaw> {
    let (ranks, postings) = (messages.ranks, &messages.of[rank]);
    let mut needs: Vec<Option<MessageNeed>> = vec![None; postings.len()];
    // Receives that are posted, and that no op has waited for.
    let (mut open, mut next): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut position = super::start(messages.plan(), messages.decodes);
    for (op, &does) in ranks.ops[rank].iter().enumerate() {
        while postings.get(next).is_some_and(|posting| posting.is_posted_by(op)) {
            open.extend(Some(next).filter(|&index| !postings[index].batch.is_sent));
            next += 1;
        }
        let mut taken: Vec<usize> = Vec::new();
        for (read, to) in reads(messages, rank, does, &position) {
            let need = MessageNeed { op, read: Some(read) };
            if taken.iter().any(|&index| needs[index] == Some(need)) {
                continue;
            }
            let peer = messages.plan().config.mesh.rank(read.at);
            let brings = |posting: &Posting| posting.batch.peer == peer && posting.payload == Payload::At(to);
            let Some(at) = open.iter().position(|&index| brings(&postings[index])) else {
                let note = format!("reads {:?} of rank {peer}, at {to:?}", read.content);
                let spots = vec![ranks.spot(rank, op, note)];
                return Err(ranks.flaw("an op reads bytes that no message received by then has brought", spots));
            };
            let index = open.remove(at);
            if messages.other(rank, index).payload != Payload::At(read.place) {
                let ends = [(rank, index), (peer, messages.others[rank][index])];
                return Err(messages.flaw("a message brings the bytes of another place than its op reads", &ends));
            }
            needs[index] = Some(need);
            taken.push(index);
        }
        if does == Op::Agree {
            let is_number = |&index: &usize| postings[index].place().is_none();
            open.iter()
                .copied()
                .filter(is_number)
                .for_each(|index| needs[index] = Some(MessageNeed { op, read: None }));
            open.retain(|index| !is_number(index));
            numbers(messages, come, rank, op)?;
        }
        position.pass(does);
    }
    // Messages that are left when the last op ends were received in vain.
    let rest = (0..postings.len()).filter(|&index| !postings[index].batch.is_sent && needs[index].is_none());
    match rest.into_iter().find(|&index| postings[index].payload.bytes(messages.plan()) > 0) {
        Some(index) => Err(messages.flaw("a message is received that no op waits for", &[(rank, index)])),
        None => Ok(needs),
    }
}

/// The places of ranks of other hosts that an op reads, each with the place where it looks for the content.
fn reads(messages: &Messages, rank: usize, op: Op, position: &Position) -> Vec<(Access, Place)> {
    let plan = messages.plan();
    let (mut reads, mut read) = (Vec::new(), None);
    (messages.accesses)(plan, messages.ranks.pass, op, position, messages.at(rank), &mut |access| match read.take() {
        // The next access has the place where it has arrived.
        Some(read) => reads.push((read, access.place)),
        None => read = Some(access).filter(|access| !plan.config.reaches(rank, plan.config.mesh.rank(access.at))),
    });
    reads
}

/// Proves that in an exchange the numbers of all ranks of other hosts arrive at some rank of this host.
fn numbers(messages: &Messages, come: &Numbers, rank: usize, op: usize) -> Result<(), Flaw> {
    let mesh = &messages.plan().config.mesh;
    let own = mesh.node(rank);
    let is_missing = |of: &usize| mesh.node(*of) != own && !come.contains(&(own, *of));
    match (0..messages.of.len()).find(is_missing) {
        Some(of) => {
            let spots = vec![messages.ranks.spot(rank, op, format!("needs those of rank {of}"))];
            Err(messages.ranks.flaw("the numbers of a rank arrive at no rank of another host", spots))
        }
        None => Ok(()),
    }
}
