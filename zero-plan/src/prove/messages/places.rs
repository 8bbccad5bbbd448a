//! Places: proves that no op uses the place of a message in a forbidden way while the message is on its way. Each rank
//! is walked by itself, because no other rank writes what it sends.

use std::collections::HashMap;

use super::leaving::Leaving;
use super::needs::MessageNeed;
use super::{Flaw, Messages, Posting};
use crate::layout::Kind;
use crate::pipeline::Pass;
use crate::place::{Access, Place};
use crate::postings::Moment;
use crate::prove::flow::ContentFlow;
use crate::schedule::Op;

/// Proves this for all ranks.
pub(super) fn places(messages: &Messages, needs: &[Vec<Option<MessageNeed>>]) -> Result<(), Flaw> {
    let mut flow = ContentFlow::new(messages.ranks.plan, messages.ranks.pass, 0);
    for rank in 0..messages.of.len() {
        let mut leaving = Leaving::default();
        Pass::ALL.into_iter().for_each(|pass| leaving.open.extend(left_over(messages, rank, pass).open));
        let mut sources = Sources::default();
        leaving.open.iter().for_each(|sent| sources.add(sent.posting));
        PlacesWalk { messages, needs, rank, flow: &mut flow, leaving, sources, receives: Vec::new() }.run()?;
    }
    Ok(())
}

/// The messages that a pass of the plan leaves on their way when the next pass begins.
fn left_over(messages: &Messages, rank: usize, pass: Pass) -> Leaving {
    let plan = messages.plan();
    let ops = plan.of_rank(rank).ops(pass);
    Leaving::walk(plan, ops, &super::of_ops(plan, rank, ops, messages.decodes), messages.decodes, &mut |_| {})
}

/// The places that messages leave from: for each region, each place with one of its messages and their number.
#[derive(Default)]
struct Sources(HashMap<Kind, HashMap<Place, (Posting, usize)>>);

impl Sources {
    fn add(&mut self, posting: Posting) {
        if let Some(place) = posting.place() {
            self.0.entry(place.region).or_default().entry(place).or_insert((posting, 0)).1 += 1;
        }
    }

    fn remove(&mut self, posting: Posting) {
        let Some(place) = posting.place() else { return };
        let places = self.0.entry(place.region).or_default();
        if let Some((_, count)) = places.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                places.remove(&place);
            }
        }
    }

    /// A message that leaves from a place that overlaps this one.
    fn within(&self, place: Place) -> Option<Posting> {
        let mut places = self.0.get(&place.region)?.iter();
        places.find(|(other, _)| !other.is_apart_from(place)).map(|(_, (posting, _))| *posting)
    }
}

struct PlacesWalk<'a, 'f> {
    messages: &'a Messages<'a>,
    needs: &'a [Vec<Option<MessageNeed>>],
    rank: usize,
    /// The content of the memory of the rank.
    flow: &'f mut ContentFlow<'a>,
    leaving: Leaving,
    sources: Sources,
    /// Receives that are posted and have not arrived.
    receives: Vec<usize>,
}

impl PlacesWalk<'_, '_> {
    fn run(&mut self) -> Result<(), Flaw> {
        let (messages, rank) = (self.messages, self.rank);
        let (plan, ranks, at) = (messages.plan(), messages.ranks, messages.at(rank));
        let (mut position, mut next) = (super::start(plan, messages.decodes), 0);
        for (index, &op) in ranks.ops[rank].iter().enumerate() {
            let left = self.leaving.wait(plan, op, &position);
            left.into_iter().for_each(|sent| self.sources.remove(sent.posting));
            let mut post = |walk: &mut Self, last: Moment| {
                while messages.of[rank].get(next).is_some_and(|posting| posting.op == index && posting.moment <= last) {
                    walk.post(next)?;
                    let posting = messages.of[rank][next];
                    if posting.batch.is_sent {
                        walk.leaving.send(next, posting, &position);
                        walk.sources.add(posting);
                    }
                    next += 1;
                }
                Ok(())
            };
            post(self, Moment::Exchange)?;
            self.receives.retain(|&posting| self.needs[rank][posting].is_some_and(|need| need.op > index));
            let mut flaw = None;
            (messages.accesses)(plan, ranks.pass, op, &position, at, &mut |access| {
                if access.at == at && flaw.is_none() {
                    flaw = self.touch(index, op, &access).err();
                }
            });
            flaw.map_or(Ok(()), Err)?;
            post(self, Moment::End)?;
            position.pass(op);
        }
        Ok(())
    }

    /// Processes a posting of a rank, whose place must not be in a use that forbids it.
    fn post(&mut self, index: usize) -> Result<(), Flaw> {
        let (messages, rank) = (self.messages, self.rank);
        let posting = messages.of[rank][index];
        let Some(place) = posting.place() else {
            return Ok(());
        };
        if let Some(open) = self.received_into(place, |_| true) {
            let rule = "a message uses a place that another message is received into";
            return Err(messages.flaw(rule, &[(rank, index), (rank, open)]));
        }
        if !posting.batch.is_sent {
            if let Some(leaving) = self.sources.within(place) {
                return Err(self.overwritten(posting.op, leaving));
            }
            self.receives.push(index);
            return Ok(());
        }
        let needed = self.needs[posting.batch.peer][messages.others[rank][index]];
        let Some(read) = needed.and_then(|need| need.read) else { return Ok(()) };
        match self.flow.other(&read) {
            None => Ok(()),
            Some(found) => {
                let mut spot = messages.spot(rank, index);
                spot.note = format!("{}, where {:?} is expected and {found} lies", spot.note, read.content);
                Err(messages.ranks.flaw("a message is sent before its bytes are there, or too late", vec![spot]))
            }
        }
    }

    /// Processes an access of an op to a place of its rank.
    fn touch(&mut self, index: usize, op: Op, access: &Access) -> Result<(), Flaw> {
        let (messages, place) = (self.messages, access.place);
        // The writes of an op that begins a gather only state that something arrives at these places from now on.
        let says_so = |posting: &Posting| {
            access.writes && matches!(op, Op::Gather { .. }) && posting.op == index && posting.place() == Some(place)
        };
        if let Some(open) = self.received_into(place, |posting| !says_so(posting)) {
            let verb = if access.writes { "writes" } else { "reads" };
            let user = messages.ranks.spot(self.rank, index, format!("{verb} {place:?}"));
            let rule = "an op uses a place that a message is received into";
            return Err(messages.ranks.flaw(rule, vec![user, messages.spot(self.rank, open)]));
        }
        if access.writes {
            if let Some(leaving) = self.sources.within(place) {
                return Err(self.overwritten(index, leaving));
            }
            self.flow.write(access);
        }
        Ok(())
    }

    /// A message that is being received into a place that overlaps this one.
    fn received_into(&self, place: Place, counts: impl Fn(&Posting) -> bool) -> Option<usize> {
        let of = &self.messages.of[self.rank];
        let is_there = |index: &usize| of[*index].place().is_some_and(|other| !other.is_apart_from(place));
        self.receives.iter().copied().find(|index| is_there(index) && counts(&of[*index]))
    }

    fn overwritten(&self, op: usize, leaving: Posting) -> Flaw {
        let ranks = self.messages.ranks;
        let note = format!("may overwrite a message to rank {}: {:?}", leaving.batch.peer, leaving.payload);
        ranks.flaw("a message is overwritten before it has left", vec![ranks.spot(self.rank, op, note)])
    }
}
