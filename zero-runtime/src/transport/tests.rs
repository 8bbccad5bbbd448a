//! What ranks see of one another's memory, and that sums are those of the tree wherever they go.

use zero_plan::unit::Unit;
use zero_plan::{Config, Kind, Mesh, PlanBuf};

use super::{Shared, Transport, local};
use crate::device::Write;

/// Parameters of the only unit that has any: not a multiple of what ranks own.
const PARAMS: usize = 1001;

/// A unit without activations.
const fn unit(source: usize, params: usize) -> Unit {
    Unit { source, params, takes: params, ..Unit::NONE }
}

/// What each rank of `config` comes to.
fn run<R: Send>(config: Config, rank_main: impl Fn(Shared) -> R + Sync) -> Vec<R> {
    let plan = PlanBuf::new("", config, &[unit(0, PARAMS), unit(1, 64)]);
    plan.with(|plan| local::run(plan, |_| false, rank_main).expect("the memory of a tiny plan"))
}

/// Returns when all ranks have called it.
fn barrier(transport: &mut Shared) {
    let mut all = vec![0.0; transport.arena().plan().config.mesh.ranks()];
    transport.exchange(&[0.0], &mut all).expect("no rank has given up");
}

/// Element `i` of the gradients of `rank`.
fn gradient(rank: usize, i: usize) -> f32 {
    (1 + rank) as f32 / (3 + i) as f32
}

#[test]
fn a_gather_on_shared_memory_is_a_view_of_what_owners_write() {
    const RANKS: usize = 3;
    let config = Config { mesh: Mesh::of_zero(RANKS), stage: 3, ..Config::PLAIN };
    run(config, |mut transport| {
        let (rank, arena) = (transport.rank(), transport.arena().clone());
        let (own, len) = arena.shard(0, rank);
        transport.publish(0);
        transport.gather(0, 0);
        transport.wait(0).expect("no rank has given up");
        for owner in 0..RANKS {
            let written = arena.address::<f32>(owner, Kind::Parameters, arena.shard(0, owner).0, len);
            let read = &transport.gathered(0).as_slice()[owner * len];
            assert!(std::ptr::eq(read, written), "rank {rank} reads a copy of the shard of rank {owner}");
        }
        barrier(&mut transport);
        #[expect(unsafe_code, reason = "a test plays the optimizer")]
        // SAFETY: no rank has a view between the barriers.
        unsafe { arena.view_mut::<f32>(Kind::Parameters, own, len) }.into_slice().fill(1.0 + rank as f32);
        barrier(&mut transport);
        let seen: Vec<f32> = transport.gathered(0).as_slice().chunks(len).map(|shard| shard[len - 1]).collect();
        assert_eq!(seen, [1.0, 2.0, 3.0], "rank {rank} sees what owners wrote after the gather");
    });
}

/// Fills gradients, reduces them twice (if `micro_batches` says so), and compares with the definition.
fn reduces(ranks: usize, stage: u8, micro_batches: usize) {
    let config = Config { mesh: Mesh::of_zero(ranks), stage, micro_batches, bucket_bytes: 1, ..Config::PLAIN };
    run(config, |mut transport| {
        let (rank, arena) = (transport.rank(), transport.arena().clone());
        let bucket = arena.plan().placements[0].bucket;
        let (start, padded) = arena.local_gradients(0);
        for round in 0..micro_batches {
            transport.claim(bucket).expect("no rank has given up");
            #[expect(unsafe_code, reason = "a test plays a backward pass")]
            // SAFETY: peers have read what lies in the staging.
            let local = unsafe { arena.view_mut::<f32>(Kind::Gradients, start, padded) }.into_slice();
            local.iter_mut().enumerate().for_each(|(i, x)| *x = gradient(rank + round, i));
            transport.reduce(bucket);
            let write = if round == 0 { Write::Set } else { Write::Add };
            transport.settle(bucket, write).expect("no rank has given up");
        }
        let (kind, at, len) = arena.reduced(0, rank);
        #[expect(unsafe_code, reason = "a test looks at a sum")]
        // SAFETY: it is whole, and nobody adds to it.
        let sum = unsafe { arena.view::<f32>(kind, at, len) }.as_slice();
        for (i, sum) in sum.iter().enumerate() {
            let term = |round: usize, peer: usize| gradient(peer + round, rank * len + i);
            let tree = |round: usize| match ranks {
                2 => term(round, 0) + term(round, 1),
                _ => (term(round, 0) + term(round, 1)) + term(round, 2),
            };
            let expected = (1..micro_batches).fold(tree(0), |sum, round| sum + tree(round));
            assert_eq!(sum.to_bits(), expected.to_bits(), "{config:?}: element {i} of rank {rank}");
        }
    });
}

#[test]
fn sums_are_those_of_the_tree_in_place_and_apart() {
    for ranks in [2, 3] {
        reduces(ranks, 1, 1);
        reduces(ranks, 2, 1);
        reduces(ranks, 1, 2);
        reduces(ranks, 2, 3);
    }
}
