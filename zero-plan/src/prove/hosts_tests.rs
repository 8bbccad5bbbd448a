//! What ranks of a host do together for what they need of other hosts, and that a proof objects where it is not done.

use super::{prove, prove_ranks};
use crate::config::{Config, Often, Precision, TransportKind, Width};
use crate::layout::{Home, Kind};
use crate::mesh::Mesh;
use crate::pipeline::Pass;
use crate::place::{Position, arrivals};
use crate::plan::{Plan, PlanBuf};
use crate::schedule::Op;
use crate::traffic::{Moved, Traffic};
use crate::unit::Unit;

fn planned<R>(config: Config, with: impl FnOnce(&Plan) -> R) -> R {
    let unit = |source, params| Unit {
        source,
        position: source,
        params,
        takes: params,
        input_bytes: 40,
        output_bytes: 40,
        targets_bytes: 40,
        operations: 1,
        ..Unit::NONE
    };
    PlanBuf::new("Four", config, &[unit(0, 900), unit(1, 40), unit(2, 0), unit(3, 700)]).with(with)
}

/// Hosts of so many ranks along `zero`.
fn hosts(nodes: usize, each: usize, stage: u8) -> Config {
    let mesh = Mesh { nodes, ..Mesh::of_zero(nodes * each) };
    Config { mesh, stage, prefetch: 1, bucket_bytes: 1, transport: TransportKind::Cluster, ..Config::PLAIN }
}

#[test]
fn every_way_to_share_what_comes_from_other_hosts_is_proven() {
    let narrow = Precision { compute: Width::BF16, params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
    let (mut shared, mut summed) = (0, 0);
    for (nodes, each) in [(2, 2), (2, 3), (3, 2), (2, 4)] {
        for stage in 0..=3 {
            for precision in [Precision::default(), narrow, Precision { params: Width::BF16, ..Precision::default() }] {
                for (micro_batches, reduce, bucket_bytes) in [
                    (1, Often::PerMicroBatch, 1),
                    (2, Often::PerMicroBatch, 1),
                    (3, Often::PerMicroBatch, usize::MAX),
                    (3, Often::PerStep, 3000),
                ] {
                    for gather in [Often::PerMicroBatch, Often::PerStep] {
                        let base = hosts(nodes, each, stage);
                        let config = Config { precision, micro_batches, reduce, bucket_bytes, gather, ..base };
                        planned(config, |plan| prove(plan).map(drop))
                            .unwrap_or_else(|flaw| panic!("{config:?}: {flaw}"));
                        shared += usize::from(config.shares_slots());
                        summed += usize::from(config.sums_on_hosts());
                    }
                }
            }
        }
    }
    assert!(shared > 40 && summed > 100, "{shared} with slots in common, {summed} with sums over hosts");
}

#[test]
fn slots_for_gathered_parameters_are_there_once_a_host() {
    let slots = |config: Config| planned(config, |plan| plan.stages[0].memory.region(Kind::Gathered));
    let apart = slots(Config { transport: TransportKind::Local, ..hosts(2, 2, 3) });
    let shared = slots(hosts(2, 2, 3));
    assert_eq!((apart.home, shared.home), (Home::Private, Home::Common));
    assert_eq!(apart.bytes, 2 * shared.bytes);
}

/// The ranks that one receives gathered shards of, or sends its own to.
fn counterparts(plan: &Plan, rank: usize, receives: bool) -> Vec<usize> {
    let mesh = &plan.config.mesh;
    let gather = Op::Gather { unit: 0, slot: 0 };
    let is_one = |&other: &usize| {
        let (to, from) = if receives { (rank, other) } else { (other, rank) };
        let mut is_there = false;
        let own = plan.places(mesh.coordinates(to));
        arrivals(plan, gather, &Position::new(plan.units.len()), &own, &mut |arrival| {
            is_there |= mesh.rank(arrival.from) == from;
        });
        is_there
    };
    (0..mesh.ranks()).filter(is_one).collect()
}

/// A shard goes once to each other host, and so does the sum of what a host has of one.
#[test]
fn what_goes_from_host_to_host_goes_once() {
    for (nodes, each) in [(2, 2), (3, 2), (2, 4)] {
        planned(hosts(nodes, each, 3), |plan| {
            let step = plan.stages[0].step;
            let shard = |elements: usize| elements / (nodes * each) * 4;
            let gathers: usize = step
                .iter()
                .map(|op| match *op {
                    Op::Gather { unit, .. } => shard(plan.placements[unit].padded),
                    _ => 0,
                })
                .sum();
            let sums: usize = step
                .iter()
                .map(|op| match *op {
                    Op::Reduce { bucket, .. } => shard(plan.buckets[bucket].elements),
                    _ => 0,
                })
                .sum();
            for rank in 0..nodes * each {
                let sent = Traffic::between_hosts(plan, rank, step);
                assert_eq!((sent.gather_bytes, sent.reduce_bytes), ((nodes - 1) * gathers, (nodes - 1) * sums));
                assert_eq!(counterparts(plan, rank, true), counterparts(plan, rank, false));
                let all = Moved::taken(plan, rank, step);
                assert_eq!((all.copied.gather_bytes, all.copied.reduce_bytes), (sent.gather_bytes, sent.reduce_bytes));
                assert_eq!(all.all().gather_bytes, (nodes * each - 1) * gathers);
                assert_eq!(all.all().reduce_bytes, (nodes * each - 1) * sums);
            }
        });
    }
}

#[test]
fn a_sum_over_a_host_that_is_left_out_or_done_twice_is_found() {
    planned(Config { micro_batches: 2, ..hosts(2, 2, 3) }, |plan| {
        let step = plan.stages[0].step;
        let is_sum = |op: &Op| matches!(op, Op::Subtotal { .. });
        assert!(step.iter().filter(|op| is_sum(op)).count() >= 4);
        for at in (0..step.len()).filter(|&at| is_sum(&step[at])) {
            let (mut without, mut twice, mut late) = (step.to_vec(), step.to_vec(), step.to_vec());
            let op = without.remove(at);
            twice.insert(at, op);
            let settle = step
                .iter()
                .skip(at)
                .position(|other| matches!(other, Op::Settle { bucket, .. } if op.bucket() == Some(*bucket)));
            late.remove(at);
            late.insert(at + settle.expect("each is settled"), op);
            for ops in [without, twice, late] {
                assert!(prove_ranks(plan, Pass::Train, &[&ops[..]; 4]).is_err(), "{op:?} at {at}");
            }
        }
    });
}
