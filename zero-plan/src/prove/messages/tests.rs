//! Tests that messages of all kinds of plans over hosts are proven, and that every wrong posting is found.

use super::{Posting, messages, needs, posted};
use crate::build::PlanBuf;
use crate::config::{Config, Often, OptimizerKind, Order, Precision, TransportKind, Width};
use crate::groups::Groups;
use crate::mesh::{Axis, Mesh};
use crate::pipeline::Pass;
use crate::place::accesses;
use crate::plan::Plan;
use crate::postings::{Moment, Payload};
use crate::prove::hosts_tests::unit;
use crate::prove::{Flaw, Ranks, prove};
use crate::schedule::Op;
use crate::unit::{OrthogonalCost, Unit};

/// Four units, of which the last may be tied to the first, over hosts.
fn planned<R>(config: Config, ties: bool, with: impl FnOnce(&Plan) -> R) -> R {
    let last = if ties { Unit { source: 0, takes: 900, ..unit(3, 0) } } else { unit(3, 700) };
    let matrices = OrthogonalCost { room_bytes: 77, operations: 9, operations_max: 5 };
    let units = [unit(0, 900), Unit { matrices, ..unit(1, 40) }, Unit { matrices, ..unit(2, 300) }, last];
    let config = Config { transport: TransportKind::Cluster, prefetch: config.prefetch.max(1), ..config };
    PlanBuf::new("Four", config, &units).with(with)
}

/// Meshes that cross hosts along each axis, and along two of them. The last ones have several replicas on a host.
fn meshes() -> Vec<Mesh> {
    let outermost = |axis| match axis {
        Axis::Zero => [Axis::Pipeline, Axis::Replica, Axis::Zero],
        Axis::Replica => [Axis::Zero, Axis::Pipeline, Axis::Replica],
        Axis::Pipeline => Axis::ALL,
    };
    let of = |nodes, zero, replica, pipeline, order| Mesh { nodes, zero, replica, pipeline, order };
    vec![
        of(2, 2, 1, 1, Axis::ALL),
        of(2, 4, 1, 1, Axis::ALL),
        of(2, 6, 1, 1, Axis::ALL),
        of(3, 6, 1, 1, Axis::ALL),
        of(2, 1, 2, 1, outermost(Axis::Replica)),
        of(2, 2, 2, 1, outermost(Axis::Replica)),
        of(4, 2, 2, 1, outermost(Axis::Replica)),
        of(2, 1, 1, 2, outermost(Axis::Pipeline)),
        of(2, 2, 1, 2, outermost(Axis::Pipeline)),
        of(2, 2, 2, 2, outermost(Axis::Pipeline)),
        of(2, 4, 1, 2, outermost(Axis::Zero)),
        of(4, 2, 2, 2, outermost(Axis::Pipeline)),
        of(8, 2, 2, 2, outermost(Axis::Pipeline)),
        of(2, 1, 4, 1, outermost(Axis::Replica)),
        of(2, 1, 6, 1, outermost(Axis::Replica)),
        of(3, 1, 6, 1, outermost(Axis::Replica)),
        of(2, 2, 4, 1, outermost(Axis::Replica)),
        of(2, 2, 4, 2, outermost(Axis::Replica)),
    ]
}

#[test]
fn messages_of_all_ways_to_share_work_over_hosts_are_proven() {
    let narrow = Precision { compute: Width::BF16, params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
    let wide = Precision { params: Width::BF16, ..Precision::default() };
    let (mut proven, mut tied, mut refused) = (0, 0, 0);
    for mesh in meshes() {
        for stage in 0..=3 {
            for (precision, micro_batches, reduce, gather, bucket_bytes) in [
                (Precision::default(), 1, Often::PerMicroBatch, Often::PerMicroBatch, 1),
                (Precision::default(), 3, Often::PerMicroBatch, Often::PerStep, 3000),
                (narrow, 2, Often::PerMicroBatch, Often::PerMicroBatch, 1),
                (wide, 3, Often::PerStep, Often::PerMicroBatch, 1),
                (wide, 2, Often::PerMicroBatch, Often::PerStep, usize::MAX),
            ] {
                for order in [Order::OneFOneB, Order::GPipe, Order::Interleaved { chunks: 2 }] {
                    let is_interleaved = matches!(order, Order::Interleaved { .. });
                    if mesh.pipeline == 1 && order != Order::OneFOneB
                        || is_interleaved && micro_batches % mesh.pipeline > 0
                    {
                        continue;
                    }
                    for ties in [false, true] {
                        let base = Config { mesh, stage, precision, micro_batches, order, ..Config::PLAIN };
                        let config = Config { reduce, gather, bucket_bytes, ..base };
                        planned(config, ties, |plan| prove(plan).map(drop))
                            .unwrap_or_else(|flaw| panic!("{config:?}, ties: {ties}: {flaw}"));
                        proven += 1;
                        tied += usize::from(ties && mesh.pipeline > 1);
                        let muon = Config { optimizer: OptimizerKind::Muon, ..config };
                        let is_proven = planned(muon, ties, |plan| prove(plan).map(drop));
                        match is_proven {
                            Ok(()) => assert!(!planned(muon, ties, |plan| plan.config.sends_directions()), "{muon:?}"),
                            // Nothing waits until directions have left, so such a spec is refused.
                            Err(flaw) => {
                                assert!(planned(muon, ties, |plan| plan.config.sends_directions()), "{muon:?}: {flaw}");
                                refused += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(proven > 500 && tied > 50, "{proven} plans, {tied} with ties over pipeline stages");
    assert!(refused > 50 && refused < proven / 2, "{refused} of {proven} send directions from host to host");
}

/// Calls back with a training step of small plans that together have all kinds of messages.
fn each_step(with: &dyn Fn(&Ranks)) {
    let mesh_of = |at: usize| meshes().swap_remove(at);
    let base = Config { micro_batches: 2, bucket_bytes: 3000, ..Config::PLAIN };
    for (mesh, stage, bucket_bytes, ties) in [
        (mesh_of(0), 3, 1, false),
        (mesh_of(0), 0, 3000, false),
        (mesh_of(5), 2, 3000, false),
        (mesh_of(8), 1, 1, true),
        (mesh_of(13), 0, 1, false),
        (mesh_of(14), 2, 3000, false),
    ] {
        planned(Config { mesh, stage, bucket_bytes, ..base }, ties, |plan| {
            let ops: Vec<&[Op]> = (0..mesh.ranks()).map(|rank| plan.of_rank(rank).ops(Pass::Train)).collect();
            with(&Ranks { plan, pass: Pass::Train, ops: &ops, groups: Groups::of(plan) });
        });
    }
}

/// Proves the messages of a pass after an edit of the postings of some ranks.
fn proof(ranks: &Ranks, whose: &dyn Fn(usize) -> bool, edit: &dyn Fn(&mut Vec<Posting>)) -> Result<(), Flaw> {
    messages(ranks, &accesses, false, &|ranks, rank, decodes| {
        let mut postings = posted(ranks, rank, decodes);
        if whose(rank) {
            edit(&mut postings);
            postings.sort_by_key(|posting| (posting.op, posting.moment));
        }
        postings
    })
}

/// An edit of one posting among all those of a rank. Returns whether it must be found.
type Edit<'f> = dyn Fn(&Ranks, usize, &mut Vec<Posting>, usize) -> bool + 'f;

/// Edits each posting of each rank by itself, if `edit` says that it must be found, and compares the flaw with `rules`.
/// Returns the number of edits.
fn each_is_found(rules: &[&str], edit: &Edit) -> usize {
    let edits = core::cell::Cell::new(0);
    each_step(&|ranks| {
        assert_eq!(proof(ranks, &|_| false, &|_| {}), Ok(()));
        for rank in 0..ranks.ops.len() {
            let right = posted(ranks, rank, false);
            for index in 0..right.len() {
                if !edit(ranks, rank, &mut right.clone(), index) {
                    continue;
                }
                edits.set(edits.get() + 1);
                let edited = proof(ranks, &|other| other == rank, &|postings| {
                    edit(ranks, rank, postings, index);
                });
                let flaw = edited.expect_err(&format!("{:?} of rank {rank}", right[index]));
                assert!(rules.contains(&flaw.rule.as_str()), "{:?} of rank {rank}: {flaw}", right[index]);
                assert!(!flaw.places.is_empty(), "{flaw}");
            }
        }
    });
    edits.get()
}

const UNPAIRED: [&str; 2] = ["only one side of a message is posted", "a message is not what its receiver expects"];
/// Also found if one of several messages between two ranks is posted after its successors.
const ANOTHER_PLACE: &str = "a message brings the bytes of another place than its op reads";

#[test]
fn a_message_with_another_tag_is_found() {
    let rules = [&UNPAIRED[..], &["a message has a tag that is not for ops"]].concat();
    let edits = each_is_found(&rules, &|_, _, postings, index| {
        postings[index].tag += 10;
        true
    });
    assert!(edits > 200, "{edits}");
}

#[test]
fn a_message_that_is_left_out_is_found() {
    let edits = each_is_found(&UNPAIRED, &|_, _, postings, index| {
        postings.remove(index);
        true
    });
    assert!(edits > 200, "{edits}");
}

#[test]
fn a_shorter_message_is_found() {
    let edits = each_is_found(&UNPAIRED, &|_, _, postings, index| match &mut postings[index].payload {
        Payload::At(place) => {
            place.len_bytes -= 1;
            true
        }
        Payload::Numbers { .. } => false,
    });
    assert!(edits > 200, "{edits}");
}

#[test]
fn messages_of_one_tag_that_are_swapped_are_found() {
    let rules = [&UNPAIRED[..], &[ANOTHER_PLACE]].concat();
    let more = [
        "an op reads bytes that no message received by then has brought",
        "a message uses a place that another message is received into",
    ];
    let edits = each_is_found(&[rules, more.to_vec()].concat(), &|_, _, postings, index| {
        let one = postings[index];
        let is_other = |other: &Posting| {
            (other.tag, other.batch.peer, other.batch.is_sent) == (one.tag, one.batch.peer, one.batch.is_sent)
                && other.payload != one.payload
        };
        let Some(other) = postings[index + 1..].iter().position(is_other) else { return false };
        let other = index + 1 + other;
        (postings[index].payload, postings[other].payload) = (postings[other].payload, one.payload);
        true
    });
    assert!(edits > 20, "{edits}");
}

/// The op that waits for a message that a rank receives.
fn waiting(ranks: &Ranks, rank: usize, index: usize) -> Option<usize> {
    let of: Vec<Vec<Posting>> = (0..ranks.ops.len()).map(|rank| posted(ranks, rank, false)).collect();
    let mut all = super::Messages { ranks, accesses: &accesses, decodes: false, of, others: Vec::new() };
    all.others = all.pair().expect("what the plan posts is paired");
    needs::needs(&all).expect("what the plan posts brings what ops need")[rank][index].map(|need| need.op)
}

#[test]
fn a_message_that_is_received_too_late_is_found() {
    let rules = ["an op reads bytes that no message received by then has brought", ANOTHER_PLACE, UNPAIRED[1]];
    let edits = each_is_found(&rules, &|ranks, rank, postings, index| {
        if postings[index].batch.is_sent || postings[index].batch.op == Op::Agree {
            return false;
        }
        let op = waiting(ranks, rank, index).expect("each is waited for") + 1;
        let is_there = op < ranks.ops[rank].len();
        (postings[index].op, postings[index].moment) = (op, Moment::Begin);
        is_there
    });
    assert!(edits > 100, "{edits}");
}

/// Terms of buckets arrive in one place, in which those of two buckets overlap in most cases.
#[test]
fn terms_that_are_received_before_the_bucket_before_is_settled_are_found() {
    let rule = "a message uses a place that another message is received into";
    let edits = each_is_found(&[rule], &|ranks, rank, postings, index| {
        let one = postings[index];
        if one.batch.is_sent || !matches!(one.batch.op, Op::Settle { .. }) {
            return false;
        }
        let is_sent = |other: &&Posting| other.batch.is_sent && other.batch.op == one.batch.op;
        let offered = postings.iter().find(is_sent).map(|other| other.op).expect("what is received is sent as well");
        // Terms are received when the bucket before is settled.
        let before = ranks.ops[rank][one.op];
        let overlaps = |other: &Posting| {
            let places = other.place().zip(one.place());
            !other.batch.is_sent && other.batch.op == before && places.is_some_and(|(a, b)| !a.is_apart_from(b))
        };
        let is_found = offered < one.op && postings.iter().any(overlaps);
        postings.iter_mut().filter(|other| other.batch == one.batch).for_each(|other| other.op = offered);
        is_found
    });
    assert!(edits > 10, "{edits}");
}

#[test]
fn a_message_that_is_sent_before_it_is_there_is_found() {
    let rules = ["a message is sent before its bytes are there, or too late", ANOTHER_PLACE, UNPAIRED[1]];
    let edits = each_is_found(&rules, &|_, _, postings, index| {
        let is_made = postings[index].batch.is_sent && postings[index].moment == Moment::End;
        (postings[index].op, postings[index].moment) = (0, Moment::Begin);
        is_made
    });
    assert!(edits > 50, "{edits}");
}

/// A rank that waits for the message never reaches the exchange, but the sender has to reach it before it sends.
#[test]
fn a_message_that_is_sent_after_all_have_to_wait_for_it_is_found() {
    let rules = [
        "an op waits for a message that cannot have arrived",
        "a message is sent before its bytes are there, or too late",
        ANOTHER_PLACE,
    ];
    let edits = each_is_found(&[&rules[..], &UNPAIRED].concat(), &|ranks, rank, postings, index| {
        let Posting { batch, .. } = postings[index];
        let is_summed = batch.is_sent && matches!(batch.op, Op::Settle { .. } | Op::Spread { .. } | Op::Combine { .. });
        (postings[index].op, postings[index].moment) = (ranks.ops[rank].len() - 1, Moment::End);
        is_summed
    });
    assert!(edits > 50, "{edits}");
}

/// Messages leave from the places of their bytes, so an op has to wait before these are overwritten.
#[test]
fn a_place_that_is_written_before_its_message_has_left_is_found() {
    let base = Config { stage: 2, micro_batches: 4, bucket_bytes: 1, order: Order::GPipe, ..Config::PLAIN };
    for (mesh, is_wait) in
        [(0, (|op| matches!(op, Op::Claim { .. })) as fn(&Op) -> bool), (7, |op| matches!(op, Op::Clear { .. }))]
    {
        let config = Config { mesh: meshes().swap_remove(mesh), ..base };
        planned(config, false, |plan| {
            let without = |rank| plan.of_rank(rank).step.iter().copied().filter(|op| !is_wait(op)).collect::<Vec<Op>>();
            let all: Vec<Vec<Op>> = (0..config.mesh.ranks()).map(without).collect();
            let ops: Vec<&[Op]> = all.iter().map(Vec::as_slice).collect();
            let ranks = Ranks { plan, pass: Pass::Train, ops: &ops, groups: Groups::of(plan) };
            let flaw = messages(&ranks, &accesses, false, &posted).unwrap_err();
            assert_eq!(flaw.rule, "a message is overwritten before it has left", "{flaw}");
        });
    }
}

/// An MPI that buffers would hide that each rank receives before it sends.
#[test]
fn a_cycle_of_ranks_that_all_receive_before_they_send_is_found() {
    let found = core::cell::Cell::new(0);
    each_step(&|ranks| {
        for is_late in [
            |op: Op| matches!(op, Op::Spread { axis: Axis::Zero, .. }),
            |op: Op| matches!(op, Op::Spread { axis: Axis::Replica, .. }),
            |op: Op| op == Op::Agree,
        ] {
            if !posted(ranks, 0, false).iter().any(|posting| is_late(posting.batch.op)) {
                continue;
            }
            let edited = proof(ranks, &|_| true, &|postings| {
                let late = postings.iter_mut().filter(|posting| posting.batch.is_sent && is_late(posting.batch.op));
                late.for_each(|posting| posting.moment = Moment::End);
            });
            assert_eq!(edited.unwrap_err().rule, "an op waits for a message that cannot have arrived");
            found.set(found.get() + 1);
        }
    });
    assert!(found.get() >= 6, "{}", found.get());
}

/// Two ranks of two hosts, which are not counterparts, send their parts of a bucket only after they have waited. Each
/// waits for the other only because the other sends to its host peer; in some orders its own messages arrive first.
#[test]
fn a_cycle_of_ranks_that_wait_for_what_comes_to_their_mates_is_found() {
    for (mesh, axis) in [(13, Axis::Replica), (1, Axis::Zero)] {
        let config = Config { mesh: meshes().swap_remove(mesh), stage: 0, bucket_bytes: 1, ..Config::PLAIN };
        planned(config, false, |plan| {
            let ops: Vec<&[Op]> = (0..config.mesh.ranks()).map(|rank| plan.of_rank(rank).ops(Pass::Train)).collect();
            let ranks = Ranks { plan, pass: Pass::Train, ops: &ops, groups: Groups::of(plan) };
            for late in (0..plan.buckets.len()).map(|bucket| Op::Spread { bucket, axis }) {
                for whose in [[1, 2], [0, 3]] {
                    let edited = proof(&ranks, &|rank| whose.contains(&rank), &|postings| {
                        let sent =
                            postings.iter_mut().filter(|posting| posting.batch.is_sent && posting.batch.op == late);
                        sent.for_each(|posting| posting.moment = Moment::End);
                    });
                    let flaw = edited.expect_err(&format!("{late:?} of ranks {whose:?}"));
                    assert_eq!(flaw.rule, "an op waits for a message that cannot have arrived", "{flaw}");
                }
            }
        });
    }
}
