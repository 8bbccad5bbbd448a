//! Flawed plans of several hosts, to which proofs must object.

use std::cell::Cell;

use super::{converting, hosts, hosts_of_replicas, planned};
use crate::config::Config;
use crate::layout::Kind;
use crate::mesh::{Axis, Coordinates};
use crate::pipeline::Pass;
use crate::place::{Access, Content, Gradients, Place, Position, accesses};
use crate::plan::Plan;
use crate::prove::{prove_accesses, prove_ranks};
use crate::schedule::Op;
use crate::subtrees::Subtree;

/// The rule that a plan breaks if `change` edits the accesses of each op.
fn proven_with(plan: &Plan, change: impl Fn(Op, Coordinates, &mut Vec<Access>)) -> Option<String> {
    let changed = |plan: &Plan, pass, op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
        let mut all = Vec::new();
        accesses(plan, pass, op, position, at, &mut |access| all.push(access));
        change(op, at, &mut all);
        all.into_iter().for_each(visit);
    };
    prove_accesses(plan, &changed).err().map(|flaw| flaw.rule)
}

/// The ranks along an axis whose sum a term is.
fn term_of(axis: Axis, access: &Access) -> Option<Subtree> {
    let Content::Gradients { of, .. } = access.content else { return None };
    match (axis, of) {
        (Axis::Zero, Gradients::Of(rank)) | (Axis::Replica, Gradients::OfReplica(rank)) => {
            Some(Subtree { first: rank, end: rank + 1 })
        }
        (Axis::Zero, Gradients::OfSubtree { subtree, .. }) | (Axis::Replica, Gradients::OfReplicas(subtree)) => {
            Some(subtree)
        }
        _ => None,
    }
}

/// Whether an op ends a sum along an axis.
fn ends(axis: Axis, op: Op) -> bool {
    match op {
        Op::Settle { .. } => axis == Axis::Zero,
        Op::Combine { .. } => axis == Axis::Replica,
        _ => false,
    }
}

/// The accesses of a rank, one by one, except that a read from another host stays with the accesses where it arrives.
fn read_at_once(all: &[Access], at: Coordinates) -> Vec<Vec<Access>> {
    let is_far = |index: usize| all.get(index).is_some_and(|access| access.at != at);
    let mut groups: Vec<Vec<Access>> = Vec::new();
    for (index, &access) in all.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if index > 0 && is_far(index - 1) || index > 1 && is_far(index - 2) => group.push(access),
            _ => groups.push(vec![access]),
        }
    }
    groups
}

#[test]
fn a_sum_over_hosts_that_leaves_something_out_or_has_another_order_is_found() {
    let is_found = |rule: Option<String>, what: &str| {
        let rule = rule.unwrap_or_else(|| panic!("{what} is not found"));
        assert!(rule.contains("is not made along the tree"), "{what}: {rule}");
    };
    let along_zero = [(2, 2), (2, 3), (3, 3), (2, 6), (3, 5)].map(|(nodes, each)| (Axis::Zero, hosts(nodes, each, 2)));
    let along_replica = [(2, 2, 1), (2, 2, 2), (2, 3, 1), (3, 3, 2), (2, 6, 1)];
    let along_replica =
        along_replica.map(|(nodes, each, zero)| (Axis::Replica, hosts_of_replicas(nodes, each, zero, 2)));
    for (axis, config) in along_zero.into_iter().chain(along_replica) {
        planned(config, |plan| {
            let mesh = &plan.config.mesh;
            assert_eq!(proven_with(plan, |_, _, _| {}), None);
            for rank in 0..mesh.len(axis) {
                let without = |op: Op, _: Coordinates, all: &mut Vec<Access>| {
                    let term = Subtree { first: rank, end: rank + 1 };
                    if matches!(op, Op::Subtotal { .. }) {
                        all.retain(|access| access.writes || term_of(axis, access) != Some(term));
                    }
                };
                is_found(proven_with(plan, without), &format!("a sum of a host without rank {rank}"));
            }
            for sum in (0..mesh.nodes).flat_map(|host| plan.config.subtrees(axis).of_host(host)) {
                let without = |op: Op, _: Coordinates, all: &mut Vec<Access>| {
                    if ends(axis, op) {
                        all.retain(|access| term_of(axis, access) != Some(sum));
                    }
                };
                is_found(proven_with(plan, without), &format!("a sum without {sum:?}"));
            }
            // Any two consecutive terms of a sum, even if one is a sum that was made on this host.
            let numbers = plan.config.subtrees(axis).blocks().0;
            for number in 1..numbers {
                let swapped = |op: Op, at: Coordinates, all: &mut Vec<Access>| {
                    let mut reads = read_at_once(all, at);
                    let is_term = |access: &Access| !access.writes && term_of(axis, access).is_some();
                    let terms: Vec<usize> = (0..reads.len()).filter(|&index| is_term(&reads[index][0])).collect();
                    if let (true, Some(last)) = (ends(axis, op), terms.len().checked_sub(number)) {
                        reads.swap(terms[last], terms[last - 1]);
                        *all = reads.concat();
                    }
                };
                is_found(
                    proven_with(plan, swapped),
                    &format!("two terms of a sum that are swapped, {number} from its end"),
                );
            }
        });
    }
}

#[test]
fn a_shard_that_is_converted_where_no_host_peer_took_it_is_found() {
    planned(converting(2, 2), |plan| {
        let [rank, peer] = [0, 1].map(|rank| plan.config.mesh.coordinates(rank));
        let before = |place: Place| Place { offset_bytes: place.offset_bytes - place.len_bytes, ..place };
        let wrong: [&dyn Fn(Access) -> Access; 2] =
            [&|access| Access { at: rank, ..access }, &|access| Access { place: before(access.place), ..access }];
        for wrong in wrong {
            let flaw = prove_accesses(plan, &|plan, pass, op, position, at, visit| {
                accesses(plan, pass, op, position, at, &mut |access| {
                    let is_it = at == rank && access.at == peer && access.place.region == Kind::Inbox;
                    visit(if is_it { wrong(access) } else { access });
                });
            });
            let flaw = flaw.expect_err("another place");
            assert!(flaw.rule.contains("is not where it is read"), "{flaw}");
        }
    });
}

/// A rank that reads from the wrong host peer, or a host peer's gradients of another rank, finds another content there.
#[test]
fn a_sum_that_is_read_where_no_host_peer_took_it_is_found() {
    for (config, of_zero) in [(hosts(2, 2, 0), 3), (Config { micro_batches: 2, ..hosts(3, 2, 0) }, 5)] {
        planned(config, |plan| {
            let (rank, peer) = (plan.config.mesh.coordinates(0), plan.config.mesh.coordinates(1));
            let taken = plan.places(peer).local_share(0, of_zero);
            let prove_with = |wrong: &dyn Fn(Access) -> Access| {
                let found = Cell::new(0);
                let proof = prove_accesses(plan, &|plan, pass, op, position, at, visit| {
                    accesses(plan, pass, op, position, at, &mut |access| {
                        let is_it = matches!(op, Op::Spread { .. }) && at == rank && access.place == taken;
                        let is_it = is_it && access.at == peer && !access.writes;
                        found.set(found.get() + usize::from(is_it));
                        visit(if is_it { wrong(access) } else { access });
                    });
                });
                assert_eq!(found.get(), 1, "rank 0 reads it once");
                proof
            };
            assert_eq!(prove_with(&|access| access), Ok(()));
            let mine = plan.places(rank).local_share(0, of_zero);
            let another = plan.places(peer).local_share(0, of_zero - 1);
            for (at, place) in [(rank, mine), (peer, another)] {
                let flaw = prove_with(&|access| Access { at, place, ..access }).expect_err("another place");
                assert!(flaw.rule.contains("is not where it is read"), "{flaw}");
            }
        });
    }
}

#[test]
fn a_sum_over_a_host_that_is_left_out_or_done_twice_is_found() {
    for (axis, base) in [(Axis::Zero, hosts(2, 2, 3)), (Axis::Replica, hosts_of_replicas(2, 2, 2, 3))] {
        planned(Config { micro_batches: 2, ..base }, |plan| {
            let (step, ranks) = (plan.pipeline_stages[0].step, plan.config.mesh.ranks());
            let is_sum = |op: &Op| matches!(op, Op::Subtotal { .. });
            assert!(step.iter().filter(|op| is_sum(op)).count() >= 4);
            for at in (0..step.len()).filter(|&at| is_sum(&step[at])) {
                let (mut without, mut twice, mut late) = (step.to_vec(), step.to_vec(), step.to_vec());
                let op = without.remove(at);
                twice.insert(at, op);
                let end = step.iter().skip(at).position(|&other| ends(axis, other) && op.bucket() == other.bucket());
                late.remove(at);
                late.insert(at + end.expect("each sum has an end"), op);
                for ops in [without, twice, late] {
                    assert!(prove_ranks(plan, Pass::Train, &vec![&ops[..]; ranks]).is_err(), "{op:?} at {at}");
                }
            }
        });
    }
}
