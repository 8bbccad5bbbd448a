//! Tests of how ranks of a host share bytes from other hosts; `flaws` has plans to which proofs object.

mod flaws;

use core::ops::Range;

use super::prove;
use crate::build::PlanBuf;
use crate::config::{Config, Often, Precision, TransportKind, Width};
use crate::layout::{Home, Kind};
use crate::mesh::{Axis, Mesh};
use crate::place::{Position, arrivals};
use crate::plan::Plan;
use crate::schedule::Op;
use crate::traffic::{Moved, Traffic};
use crate::unit::Unit;

/// A small unit with its own parameters.
pub(super) fn unit(position: usize, params: usize) -> Unit {
    Unit {
        source: position,
        position,
        params,
        takes: params,
        input_bytes: 40,
        output_bytes: 40,
        targets_bytes: 40,
        operations: 1,
        ..Unit::NONE
    }
}

fn planned<R>(config: Config, with: impl FnOnce(&Plan) -> R) -> R {
    PlanBuf::new("Four", config, &[unit(0, 900), unit(1, 40), unit(2, 0), unit(3, 700)]).with(with)
}

/// Hosts of `each` ranks along `zero`.
fn hosts(nodes: usize, each: usize, stage: u8) -> Config {
    let mesh = Mesh { nodes, ..Mesh::of_zero(nodes * each) };
    Config { mesh, stage, prefetch: 1, bucket_bytes: 1, transport: TransportKind::Cluster, ..Config::PLAIN }
}

/// Hosts of `each` replicas of `zero` ranks.
fn hosts_of_replicas(nodes: usize, each: usize, zero: usize, stage: u8) -> Config {
    let mesh = Mesh { nodes, replica: nodes * each, ..Mesh::of_zero(zero) };
    Config { mesh, ..hosts(nodes, each, stage) }
}

/// Hosts of `each` ranks along `zero` at stage 3, with parameters that are converted when they are gathered.
fn converting(nodes: usize, each: usize) -> Config {
    Config { precision: Precision { params: Width::BF16, ..Precision::default() }, ..hosts(nodes, each, 3) }
}

/// Numbers of hosts and of ranks on each, which form one subtree of the sum or several.
const MESHES: [(usize, usize); 9] = [(2, 2), (2, 3), (3, 2), (2, 4), (3, 3), (2, 6), (3, 5), (4, 3), (2, 12)];

#[test]
fn every_way_to_share_what_comes_from_other_hosts_is_proven() {
    let narrow = Precision { compute: Width::BF16, params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
    let (mut shared, mut summed) = (0, 0);
    let along_zero = MESHES.map(|(nodes, each)| hosts(nodes, each, 0));
    let along_replica = [(2, 2, 1), (2, 2, 2), (2, 3, 1), (3, 2, 2), (2, 4, 1), (3, 3, 1), (2, 6, 1), (3, 5, 1)];
    let along_replica = along_replica.map(|(nodes, each, zero)| hosts_of_replicas(nodes, each, zero, 0));
    for base in along_zero.into_iter().chain(along_replica) {
        for stage in 0..=3 {
            for precision in [Precision::default(), narrow, Precision { params: Width::BF16, ..Precision::default() }] {
                for (micro_batches, reduce, bucket_bytes) in [
                    (1, Often::PerMicroBatch, 1),
                    (2, Often::PerMicroBatch, 1),
                    (3, Often::PerMicroBatch, usize::MAX),
                    (3, Often::PerStep, 3000),
                ] {
                    for gather in [Often::PerMicroBatch, Often::PerStep] {
                        let config = Config { stage, precision, micro_batches, reduce, bucket_bytes, gather, ..base };
                        planned(config, |plan| prove(plan).map(drop))
                            .unwrap_or_else(|flaw| panic!("{config:?}: {flaw}"));
                        shared += usize::from(config.shares_slots());
                        summed += usize::from(config.subtotal_axis().is_some());
                    }
                }
            }
        }
    }
    assert!(shared > 40 && summed > 100, "{shared} with slots in common, {summed} with sums over hosts");
}

#[test]
fn slots_for_gathered_parameters_are_there_once_a_host() {
    let slots = |config: Config| planned(config, |plan| plan.pipeline_stages[0].memory.region(Kind::Gathered));
    let apart = slots(Config { transport: TransportKind::Local, ..hosts(2, 2, 3) });
    let shared = slots(hosts(2, 2, 3));
    assert_eq!((apart.home, shared.home), (Home::Private, Home::Common));
    assert_eq!(apart.bytes, 2 * shared.bytes);
}

/// The ranks from which a rank receives in an op, or to which it sends.
fn counterparts(plan: &Plan, op: Op, rank: usize, receives: bool) -> Vec<usize> {
    let mesh = &plan.config.mesh;
    let is_one = |&other: &usize| {
        let (to, from) = if receives { (rank, other) } else { (other, rank) };
        let mut is_there = false;
        let own = plan.places(mesh.coordinates(to));
        arrivals(plan, op, &Position::new(plan.units.len()), &own, &mut |arrival| {
            is_there |= mesh.rank(arrival.from) == from;
        });
        is_there
    };
    (0..mesh.ranks()).filter(is_one).collect()
}

/// Bytes of one rank's shards in all ops of a step, each of which has that many `elements`.
fn shards_bytes(plan: &Plan, elements: impl Fn(Op) -> usize) -> usize {
    let elements: usize = plan.pipeline_stages[0].step.iter().map(|&op| elements(op)).sum();
    elements / plan.config.mesh.zero * 4
}

/// The number of the largest subtrees of a sum of ranks `first..end` that lie within `host`, by the tree's definition.
fn subtrees_of(host: &Range<usize>, first: usize, end: usize) -> usize {
    if end <= host.start || first >= host.end {
        0
    } else if host.start <= first && end <= host.end {
        1
    } else {
        let middle = first + (end - first).next_power_of_two() / 2;
        subtrees_of(host, first, middle) + subtrees_of(host, middle, end)
    }
}

/// A shard goes to each other host once, and so does the sum of a host's terms for a shard.
#[test]
fn what_goes_from_host_to_host_goes_once() {
    let mut unlike = 0;
    for (nodes, each) in MESHES {
        planned(hosts(nodes, each, 3), |plan| {
            let step = plan.pipeline_stages[0].step;
            let gathers = shards_bytes(plan, |op| match op {
                Op::Gather { unit, .. } => plan.placements[unit].padded,
                _ => 0,
            });
            let sums = shards_bytes(plan, |op| match op {
                Op::Reduce { bucket, .. } => plan.buckets[bucket].elements,
                _ => 0,
            });
            let gather = Op::Gather { unit: 0, slot: 0 };
            let of_host = |host: usize| subtrees_of(&(host * each..(host + 1) * each), 0, nodes * each);
            let of_all: usize = (0..nodes).map(of_host).sum();
            let all_of = |rank: usize| Traffic::of(plan, rank, step).total_bytes();
            let most = (0..nodes * each).map(all_of).max();
            assert_eq!(Some(all_of(plan.busiest_rank(0))), most);
            assert_eq!(plan.sends_alike(), (0..nodes * each).all(|rank| Some(all_of(rank)) == most));
            unlike += usize::from(!plan.sends_alike());
            for rank in 0..nodes * each {
                let (sent, own) = (Traffic::between_hosts(plan, rank, step), of_host(rank / each));
                assert!(own == 1 || own < each && !each.is_power_of_two(), "{own} of {each}");
                assert_eq!((sent.gather_bytes, sent.reduce_bytes), ((nodes - 1) * gathers, (nodes - 1) * own * sums));
                assert_eq!(Moved::sent(plan, rank, step).copied.reduce_bytes, sent.reduce_bytes);
                let from_hosts = Traffic::from_hosts(plan, rank, step);
                assert_eq!(
                    (from_hosts.gather_bytes, from_hosts.reduce_bytes),
                    (sent.gather_bytes, (of_all - own) * sums)
                );
                assert_eq!(counterparts(plan, gather, rank, true), counterparts(plan, gather, rank, false));
                let all = Moved::taken(plan, rank, step);
                let taken = (of_all - own) * sums;
                assert_eq!((all.copied.gather_bytes, all.copied.reduce_bytes), (sent.gather_bytes, taken));
                assert_eq!(all.all().gather_bytes, (nodes * each - 1) * gathers);
                assert_eq!(all.all().reduce_bytes, (each - 1) * nodes * sums + taken);
            }
        });
    }
    assert!(unlike >= 1, "all hosts have as many sums as one another");
}

/// In bf16, sums have twice the width of terms.
#[test]
fn hosts_send_terms_where_sums_would_be_more_bytes() {
    let reduce = Precision { reduce: Width::BF16, ..Precision::default() };
    for ((nodes, each), sums) in
        [((2, 2), true), ((2, 3), false), ((3, 3), false), ((2, 6), true), ((3, 5), true), ((2, 12), true)]
    {
        for (axis, base) in [
            (Axis::Zero, hosts(nodes, each, 2)),
            (Axis::Replica, hosts_of_replicas(nodes, each, 1, 2)),
            (Axis::Replica, hosts_of_replicas(nodes, each, 2, 2)),
        ] {
            let config = Config { precision: reduce, ..base };
            assert_eq!(config.sums_on_hosts(axis), sums, "{nodes} x {each}");
            planned(config, |plan| {
                let part = plan.config.mesh.summed_parts(axis);
                let terms: usize = plan.buckets.iter().map(|bucket| bucket.elements / part * 2).sum();
                let sent = |rank| {
                    let mut sent = Traffic::between_hosts(plan, rank, plan.pipeline_stages[0].step);
                    *sent.reduced_mut(axis)
                };
                let ranks = plan.config.mesh.ranks();
                let all: usize = (0..ranks).map(sent).sum();
                assert!(all <= ranks * (nodes - 1) * each * terms, "{nodes} x {each}: {all}");
            });
        }
    }
}

/// If every rank needs all sums, each sum also goes to each other host once, and host peers copy it from one another.
#[test]
fn what_all_ranks_need_of_a_sum_goes_from_host_to_host_once() {
    for (nodes, each, micro_batches) in [(2, 2, 1), (3, 2, 2), (2, 3, 1), (2, 4, 2)] {
        planned(Config { micro_batches, ..hosts(nodes, each, 0) }, |plan| {
            let step = plan.pipeline_stages[0].step;
            assert_eq!(plan.config.reduces_in_place(), micro_batches == 1);
            let sums = shards_bytes(plan, |op| match op {
                Op::Spread { bucket, .. } => plan.buckets[bucket].elements,
                _ => 0,
            });
            let spread = Op::Spread { bucket: plan.placements[0].bucket, axis: Axis::Zero };
            for rank in 0..nodes * each {
                assert_eq!(Traffic::between_hosts(plan, rank, step).spread_bytes, (nodes - 1) * sums);
                let others = (0..nodes).map(|node| node * each + rank % each).filter(|&other| other != rank);
                let others: Vec<usize> = others.collect();
                assert_eq!(counterparts(plan, spread, rank, true), others);
                assert_eq!(counterparts(plan, spread, rank, false), others);
                let taken = Moved::taken(plan, rank, step);
                assert_eq!(taken.copied.spread_bytes, (nodes * each - 1) * sums);
                assert_eq!(taken.in_place.spread_bytes, 0);
            }
        });
    }
}

/// Each replica's part of a sum also goes once to each other host.
#[test]
fn what_all_replicas_need_of_a_sum_goes_from_host_to_host_once() {
    for (nodes, each, zero, stage, micro_batches) in
        [(2, 2, 1, 0, 1), (2, 2, 2, 2, 1), (3, 2, 1, 3, 2), (2, 3, 2, 0, 1), (2, 4, 1, 1, 2)]
    {
        planned(Config { micro_batches, ..hosts_of_replicas(nodes, each, zero, stage) }, |plan| {
            let (step, mesh) = (plan.pipeline_stages[0].step, &plan.config.mesh);
            let parts = shards_bytes(plan, |op| match op {
                Op::Spread { bucket, axis: Axis::Replica } => plan.buckets[bucket].elements,
                _ => 0,
            }) / mesh.replica;
            let spread = Op::Spread { bucket: plan.placements[0].bucket, axis: Axis::Replica };
            for rank in 0..mesh.ranks() {
                assert_eq!(Traffic::between_hosts(plan, rank, step).replica_spread_bytes, (nodes - 1) * parts);
                let others = (0..nodes).map(|node| node * each * zero + rank % (each * zero));
                let others: Vec<usize> = others.filter(|&other| other != rank).collect();
                assert_eq!(counterparts(plan, spread, rank, true), others);
                assert_eq!(counterparts(plan, spread, rank, false), others);
                let taken = Moved::taken(plan, rank, step);
                assert_eq!(taken.copied.replica_spread_bytes, (nodes * each - 1) * parts);
                assert_eq!(taken.in_place.replica_spread_bytes, 0);
            }
        });
    }
}

/// A converted shard also goes once: host peers convert it from the inbox of the rank that received it.
#[test]
fn what_is_converted_goes_from_host_to_host_once() {
    for (nodes, each) in [(2, 2), (2, 3), (3, 2)] {
        planned(converting(nodes, each), |plan| {
            let step = plan.pipeline_stages[0].step;
            // In f32; they travel with half as many bytes.
            let gathers = shards_bytes(plan, |op| match op {
                Op::Gather { unit, .. } => plan.placements[unit].padded,
                _ => 0,
            });
            for rank in 0..nodes * each {
                let taken = Moved::taken(plan, rank, step);
                assert_eq!(2 * Traffic::between_hosts(plan, rank, step).gather_bytes, (nodes - 1) * gathers);
                assert_eq!(
                    (2 * taken.copied.gather_bytes, taken.in_place.gather_bytes),
                    ((nodes * each - 1) * gathers, 0)
                );
            }
        });
    }
}

/// The inbox is as long as what arrives there. Nothing arrives along an axis that lies within hosts.
#[test]
fn what_arrives_takes_no_more_room_than_comes_there() {
    let tied = |position| Unit { source: 0, params: 0, ..unit(position, 0) };
    let units = [unit(0, 900), unit(1, 40), unit(2, 300), tied(3)];
    let within = |nodes, pipeline, replica, zero| {
        let mesh = Mesh { nodes, pipeline, replica, ..Mesh::of_zero(zero) };
        Config { mesh, ..hosts(nodes, 1, 3) }
    };
    let converted = Precision { params: Width::BF16, ..Precision::default() };
    for (base, empty) in [
        (hosts(2, 2, 2), false),
        (hosts_of_replicas(2, 2, 2, 2), false),
        (within(2, 1, 2, 2), false),
        // Only gradients of the tied unit come from another pipeline stage.
        (within(2, 2, 1, 2), false),
        (within(2, 2, 2, 2), false),
        (Config { transport: TransportKind::Shm, ..within(2, 2, 1, 2) }, true),
    ] {
        for precision in [Precision::default(), converted] {
            PlanBuf::new("Tied", Config { precision, ..base }, &units).with(|plan| {
                let (config, mut ends) = (&plan.config, vec![0; plan.pipeline_stages.len()]);
                for at in (0..config.mesh.ranks()).map(|rank| config.mesh.coordinates(rank)) {
                    let (own, mut position) = (plan.places(at), Position::new(plan.units.len()));
                    for &op in plan.pipeline_stages[at.pipeline].step {
                        arrivals(plan, op, &position, &own, &mut |arrival| {
                            if arrival.to.region == Kind::Inbox {
                                ends[at.pipeline] =
                                    ends[at.pipeline].max(arrival.to.offset_bytes + arrival.to.len_bytes);
                            }
                        });
                        position.pass(op);
                    }
                }
                assert_eq!(ends.iter().all(|&end| end == 0), empty, "{config:?}");
                for (pipeline_stage, end) in plan.pipeline_stages.iter().zip(ends) {
                    assert_eq!(pipeline_stage.memory.region(Kind::Inbox).bytes, config.whole_lines(end), "{config:?}");
                }
            });
        }
    }
}

/// If several replicas share a host, one sum of each of their subtrees goes to each other host.
#[test]
fn replicas_of_a_host_are_summed_before_they_go_to_others() {
    let mut unlike = 0;
    for (nodes, each, zero, stage) in
        [(2, 2, 1, 0), (2, 2, 2, 2), (3, 2, 2, 3), (2, 3, 1, 1), (2, 6, 1, 2), (3, 5, 1, 2)]
    {
        planned(Config { micro_batches: 2, ..hosts_of_replicas(nodes, each, zero, stage) }, |plan| {
            let (step, mesh, subtrees) =
                (plan.pipeline_stages[0].step, &plan.config.mesh, plan.config.subtrees(Axis::Replica));
            let parts = shards_bytes(plan, |op| match op {
                Op::Combine { bucket, .. } => plan.buckets[bucket].elements,
                _ => 0,
            }) / mesh.replica;
            assert!(parts > 0);
            for rank in 0..mesh.ranks() {
                let own = subtrees.count_of(mesh.node(rank));
                unlike += usize::from(own * nodes != subtrees.count());
                let sent = Traffic::between_hosts(plan, rank, step);
                assert_eq!((sent.replica_reduce_bytes, sent.reduce_bytes), ((nodes - 1) * own * parts, 0));
                let taken = Moved::taken(plan, rank, step);
                assert_eq!(taken.copied.replica_reduce_bytes, (subtrees.count() - own) * parts);
                assert_eq!(taken.in_place.replica_reduce_bytes, (each - 1) * nodes * parts);
            }
        });
    }
    assert!(unlike > 0, "all hosts have as many sums as one another");
}
