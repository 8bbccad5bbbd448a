//! Stuck: the ranks that wait for one another, if no rank can continue. Only looks.

use super::{ExecutionEvent, ExecutionWorld};

/// Why the execution did not end: each rank waits for the next one, and the last for a rank of the list or one that has
/// ended.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub waits: Vec<Wait>,
    /// Whether the last rank waits for one of the list.
    pub is_cycle: bool,
}

/// A rank that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub rank: usize,
    /// Index of the op that it waits in.
    pub op: usize,
    /// The rank that it waits for.
    pub on: usize,
    pub what: String,
}

impl ExecutionWorld<'_> {
    /// Follows waits from rank to rank, from one that waits, until a rank repeats or does not wait.
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

    /// A rank that another one waits for, and a description of what it has not done.
    fn blame(&self, rank: usize, event: ExecutionEvent) -> (usize, String) {
        match event {
            ExecutionEvent::Begun { scope, nth } | ExecutionEvent::Done { scope, nth } => {
                let begins = matches!(event, ExecutionEvent::Begun { .. });
                let counts = |peer: usize| if begins { self.ranks[peer].begun } else { self.ranks[peer].done };
                let members = &self.groups.members[self.groups.communicator(rank, scope)];
                let late = members.iter().find(|&&peer| counts(peer)[scope as usize] <= nth);
                let verb = if begins { "begin" } else { "be done with" };
                (
                    late.map_or(rank, |&peer| peer),
                    format!("to {verb} collective {nth} of its {} communicator", scope.name()),
                )
            }
            ExecutionEvent::Subtotalled { scope, nth } => {
                let members = &self.groups.members[self.groups.communicator(rank, scope)];
                let late = members.iter().find(|&&peer| self.ranks[peer].subtotalled <= nth);
                (
                    late.map_or(rank, |&peer| peer),
                    format!("to sum collective {nth} of its {} communicator over its host", scope.name()),
                )
            }
            ExecutionEvent::Sent { parcel, nth } => {
                (self.groups.sender(rank, parcel), format!("to send parcel {nth} of {parcel:?}"))
            }
            ExecutionEvent::Taken { parcel, nth } => {
                (self.groups.receiver(rank, parcel), format!("to receive parcel {nth} of {parcel:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::build::PlanBuf;
    use crate::config::Config;
    use crate::execution::execute;
    use crate::groups::Groups;
    use crate::mesh::Mesh;
    use crate::schedule::{Op, Parcel};
    use crate::unit::Unit;

    /// The ranks that wait for one another in the end, and whether they form a cycle.
    fn stuck(mesh: Mesh, ops: &[&[Op]]) -> (Vec<String>, bool) {
        let units =
            [0, 1, 2].map(|source| Unit { params: 9, takes: 9, input_bytes: 1, output_bytes: 1, source, ..Unit::NONE });
        PlanBuf::new("Three", Config { mesh, stage: 3, ..Config::PLAIN }, &units).with(|plan| {
            let stuck = execute(plan, &Groups::of(plan), ops, &mut |_, _| 0).err().expect("a rank that cannot go on");
            let told = |wait: &super::Wait| format!("{} at {} for {} {}", wait.rank, wait.op, wait.on, wait.what);
            (stuck.waits.iter().map(told).collect(), stuck.is_cycle)
        })
    }

    #[test]
    fn who_has_not_joined_a_collective_is_named() {
        let agrees: [&[Op]; 3] = [&[Op::Agree], &[Op::Agree], &[]];
        let expected = "0 at 0 for 2 to begin collective 0 of its world communicator";
        assert_eq!(stuck(Mesh::of_zero(3), &agrees), (vec![expected.to_owned()], false));
        let reduces = [Op::Reduce { bucket: 0, round: 0 }, Op::Settle { bucket: 0, round: 0 }, Op::Claim { bucket: 0 }];
        let expected = "0 at 2 for 1 to be done with collective 0 of its `zero` communicator";
        assert_eq!(stuck(Mesh::of_zero(2), &[&reduces, &reduces[..1]]), (vec![expected.to_owned()], false));
        let gathers = [Op::Gather { unit: 0, slot: 0 }, Op::Wait { unit: 0 }];
        let second = [&gathers[..], &gathers].concat();
        let expected = "0 at 3 for 1 to begin collective 1 of its `zero` communicator";
        assert_eq!(stuck(Mesh::of_zero(2), &[&second, &gathers]), (vec![expected.to_owned()], false));
    }

    #[test]
    fn who_has_not_sent_or_taken_a_parcel_is_named_and_what_leads_to_a_cycle_is_not() {
        let mesh = Mesh { pipeline: 3, ..Mesh::of_zero(1) };
        let take = |parcel| [Op::Receive { parcel, unit: 1, micro_batch: 0, slot: 0 }];
        let (activations, gradients) = (take(Parcel::Activations), take(Parcel::Gradients));
        let sends = |rank: usize, parcel| format!("at 0 for {rank} to send parcel 0 of {parcel}");
        let expected = vec![format!("1 {}", sends(0, "Activations"))];
        assert_eq!(stuck(mesh, &[&[], &activations, &[]]), (expected, false));
        let parcel = Parcel::Activations;
        let send = Op::Send { parcel, unit: 0, micro_batch: 0 };
        let expected = vec!["0 at 2 for 1 to receive parcel 0 of Activations".to_owned()];
        assert_eq!(stuck(mesh, &[&[send, send, Op::Clear { parcel }], &[], &[]]), (expected, false));
        let expected = vec![format!("1 {}", sends(2, "Gradients")), format!("2 {}", sends(1, "Activations"))];
        assert_eq!(stuck(mesh, &[&gradients, &gradients, &activations]), (expected, true));
    }
}
