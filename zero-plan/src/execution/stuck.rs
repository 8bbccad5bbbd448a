//! Stuck: who waits for whom where no rank can go on. Only looks.

use super::{Event, World};

/// Why it did not end: each rank waits for the next; the last one for a rank of the list, or for one that is through.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub waits: Vec<Wait>,
    /// Whether the last one waits for one of the list.
    pub is_cycle: bool,
}

/// A rank that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub rank: usize,
    /// Index of the op that it waits in.
    pub op: usize,
    /// The rank that has not done what it waits for.
    pub on: usize,
    pub what: String,
}

impl World<'_> {
    /// Follows who waits for whom, from a rank that waits until one comes up again or does not wait.
    pub(super) fn stuck(&self, first: usize) -> Stuck {
        let mut waits: Vec<Wait> = Vec::new();
        let mut rank = first;
        loop {
            if let Some(start) = waits.iter().position(|wait| wait.rank == rank) {
                return Stuck { waits: waits.split_off(start), is_cycle: true };
            }
            let op = self.ranks[rank].next;
            let Some(&does) = self.ops[rank].get(op) else { return Stuck { waits, is_cycle: false } };
            let mut needs = self.needs(rank, does).into_iter().flatten();
            let event = needs.find(|&event| self.time(rank, event).is_none()).expect("a rank that waits for something");
            let (on, what) = self.blame(rank, event);
            waits.push(Wait { rank, op, on, what });
            rank = on;
        }
    }

    /// A rank that has not done what another waits for, and what that is.
    fn blame(&self, rank: usize, event: Event) -> (usize, String) {
        match event {
            Event::Begun { scope, nth } | Event::Done { scope, nth } => {
                let begins = matches!(event, Event::Begun { .. });
                let counts = |peer: usize| if begins { self.ranks[peer].begun } else { self.ranks[peer].done };
                let members = &self.groups.members[self.groups.communicator(rank, scope)];
                let late = members.iter().find(|&&peer| counts(peer)[scope as usize] <= nth);
                let verb = if begins { "begin" } else { "be done with" };
                (
                    late.map_or(rank, |&peer| peer),
                    format!("to {verb} collective {nth} of its {} communicator", scope.name()),
                )
            }
            Event::Sent { parcel, nth } => {
                (self.groups.sender(rank, parcel), format!("to send parcel {nth} of {parcel:?}"))
            }
            Event::Taken { parcel, nth } => {
                (self.groups.receiver(rank, parcel), format!("to receive parcel {nth} of {parcel:?}"))
            }
        }
    }
}
