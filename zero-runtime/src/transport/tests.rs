//! What ranks see of one another's memory, and that sums are those of the tree wherever they go.
#![allow(unsafe_code)]

use zero_plan::unit::Unit;
use zero_plan::{Config, Kind, Mesh, Moved, Op, PlanBuf, Transport as Kinds};

use super::{Shared, Transport, local};
use crate::device::Write;

/// Parameters of the only unit that has any: not a multiple of what ranks own, and several blocks of a sum in place. What
/// is interpreted must do with fewer.
const PARAMS: usize = if cfg!(miri) { 1001 } else { 30_001 };

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
    // SAFETY: tests call it where no rank is in the middle of anything.
    unsafe { transport.exchange(0, &[0.0], &mut all) }.expect("no rank has given up");
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
        // SAFETY: the calls of a schedule, on all ranks; the view ends before anybody writes.
        let gathered = unsafe {
            transport.publish(0);
            transport.gather(0, 0);
            transport.wait(0).expect("no rank has given up");
            transport.gathered(0).as_slice()
        };
        for owner in 0..RANKS {
            let written = arena.address::<f32>(owner, Kind::Parameters, arena.shard(0, owner).0, len);
            let read = &gathered[owner * len];
            assert!(std::ptr::eq(read, written), "rank {rank} reads a copy of the shard of rank {owner}");
        }
        barrier(&mut transport);
        // SAFETY: no rank has a view between the barriers.
        unsafe { arena.view_mut::<f32>(Kind::Parameters, own, len) }.into_slice().fill(1.0 + rank as f32);
        barrier(&mut transport);
        // SAFETY: no rank writes any more.
        let gathered = unsafe { transport.gathered(0) }.as_slice();
        let seen: Vec<f32> = gathered.chunks(len).map(|shard| shard[len - 1]).collect();
        assert_eq!(seen, [1.0, 2.0, 3.0], "rank {rank} sees what owners wrote after the gather");
    });
}

/// A transport that left a gather out, or did it twice, would not come to what the plan says.
#[test]
fn what_is_left_out_or_done_twice_shows_in_what_was_moved() {
    for (stage, transport, is_view) in
        [(3, Kinds::Shm, true), (3, Kinds::Local, false), (1, Kinds::Shm, false), (2, Kinds::Local, false)]
    {
        let config = Config { mesh: Mesh::of_zero(3), stage, transport, ..Config::PLAIN };
        run(config, |mut transport| {
            let planned = Moved::taken(transport.arena().plan(), &[Op::Gather { unit: 0, slot: 0 }]);
            let (copied, in_place) = (planned.copied.gather_bytes, planned.in_place.gather_bytes);
            assert_eq!((copied == 0, in_place == 0), (is_view, !is_view), "{config:?}");
            // SAFETY: the calls of a schedule, on all ranks; nobody writes parameters here.
            unsafe { transport.publish(0) };
            for times in 0..3 {
                assert_eq!(transport.moved() == planned, times == 1, "{config:?}, gathered {times} times");
                let gathered = transport.moved().all().gather_bytes;
                assert_eq!(gathered, times * (copied + in_place), "{config:?}, gathered {times} times");
                // SAFETY: as above.
                unsafe {
                    transport.gather(0, 0);
                    transport.wait(0).expect("no rank has given up");
                }
            }
        });
    }
}

/// Fills gradients, reduces them twice (if `micro_batches` says so), and compares with the definition.
fn reduces(ranks: usize, stage: u8, micro_batches: usize) {
    let config = Config { mesh: Mesh::of_zero(ranks), stage, micro_batches, bucket_bytes: 1, ..Config::PLAIN };
    run(config, |mut transport| {
        let (rank, arena) = (transport.rank(), transport.arena().clone());
        let bucket = arena.plan().placements[0].bucket;
        let (start, padded) = arena.local_gradients(0);
        for round in 0..micro_batches {
            let write = if round == 0 { Write::Set } else { Write::Add };
            // SAFETY: the calls of a schedule, on all ranks; peers have read what lies in the staging once it is claimed.
            unsafe {
                transport.claim(bucket).expect("no rank has given up");
                let local = arena.view_mut::<f32>(Kind::Gradients, start, padded).into_slice();
                local.iter_mut().enumerate().for_each(|(i, x)| *x = gradient(rank + round, i));
                transport.reduce(bucket);
                transport.settle(bucket, write).expect("no rank has given up");
            }
        }
        let ops = vec![Op::Reduce { bucket, round: 0 }; micro_batches];
        assert_eq!(transport.moved(), Moved::taken(arena.plan(), &ops), "{config:?}: rank {rank}");
        let (kind, at, len) = arena.reduced(0, rank);
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

/// A use after release shows in the loss, if it is a debug build.
#[test]
fn a_released_slot_is_nan_in_a_debug_build() {
    let config = Config { mesh: Mesh::of_zero(2), stage: 3, transport: zero_plan::Transport::Local, ..Config::PLAIN };
    run(config, |mut transport| {
        let arena = transport.arena().clone();
        let (start, len) = arena.slot(0, 0);
        // SAFETY: the calls of a schedule, on all ranks; the slot is this rank's own, and no view of it is kept.
        let slot = |transport: &Shared| unsafe { transport.gathered(0) }.as_slice().to_vec();
        // SAFETY: as before.
        unsafe {
            transport.publish(0);
            transport.gather(0, 0);
            transport.wait(0).expect("no rank has given up");
        }
        assert_eq!(slot(&transport), vec![0.0; len], "before the release, slot at {start}");
        // SAFETY: as before.
        unsafe { transport.release(0) };
        assert_eq!(slot(&transport).iter().all(|x| x.is_nan()), cfg!(debug_assertions), "after it");
    });
}

#[test]
#[should_panic(expected = "makes another call than rank")]
fn an_exchange_for_different_reasons_ends_all_ranks() {
    let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN };
    let ended = std::sync::atomic::AtomicUsize::new(0);
    let plan = PlanBuf::new("", config, &[unit(0, PARAMS), unit(1, 64)]);
    let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        plan.with(|plan| {
            local::run(
                plan,
                |_| false,
                |mut transport| {
                    let rank = transport.rank() as u64;
                    // SAFETY: nothing is under way.
                    let exchange = || unsafe { transport.exchange(rank, &[0.0], &mut [0.0; 2]) };
                    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(exchange)) {
                        ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        std::panic::resume_unwind(panic);
                    }
                },
            )
        })
    }));
    assert_eq!(ended.into_inner(), 2, "one rank went on");
    std::panic::resume_unwind(all.expect_err("ranks that panic"));
}
