//! Tests which bytes ranks see of one another's memory, and that sums follow the tree wherever they are written.

use zero_plan::place::Position;
use zero_plan::{Config, Mesh, Moved, Op, PlanBuf, TransportKind, Unit};

use super::Collectives;
use zero_core::lost::Lost;
use zero_core::transport::Transport;
use zero_cpu::Cpu;
use zero_ranks::transport::{Shared, local};

type Ranks<'p> = Collectives<'p, Cpu, Shared<'p, Cpu>>;

/// Parameters of the first unit: not a multiple of the number of ranks, and enough for several blocks of a sum in
/// place. Miri interprets, so it gets fewer.
const PARAMS: usize = if cfg!(miri) { 1001 } else { 30_001 };

/// A unit without activations.
const fn unit(source: usize, params: usize) -> Unit {
    Unit { source, params, takes: params, ..Unit::NONE }
}

/// The result of each rank of `config`.
fn run<R: Send>(config: Config, rank_main: impl Fn(Ranks) -> R + Sync) -> Vec<R> {
    let plan = PlanBuf::new("", config, &[unit(0, PARAMS), unit(1, 64)]);
    let rank_main = |transport: Shared<Cpu>| rank_main(Collectives::new(transport, Cpu::default()));
    plan.with(|plan| local::run(plan, |_| false, rank_main).expect("the memory of a tiny plan"))
}

/// Exchanges one number.
fn exchange(ranks: &mut Ranks, call: u64) -> Result<(), Lost> {
    // SAFETY: tests call it where no rank is in the middle of an op.
    unsafe { ranks.exchange(call, 1) }
}

/// Returns when all ranks have called it.
fn barrier(ranks: &mut Ranks) {
    exchange(ranks, 0).expect("no rank has given up");
}

/// Runs ops of a schedule, as all ranks do.
fn does(ranks: &mut Ranks, ops: &[Op]) {
    for &op in ops {
        // SAFETY: tests do the ops of a schedule, on all ranks, and keep a view beyond an op only to read bytes that
        // nobody writes.
        unsafe { ranks.run(op) }.expect("no rank has given up");
    }
}

/// Publishes this rank's parameters.
fn publish(ranks: &mut Ranks) {
    // SAFETY: no rank reads them yet.
    unsafe { ranks.transport.end(&ranks.device, Op::Update { unit: 0, piece: None }, &Position::new(2)) };
}

/// A gather of the first unit.
const GATHER: [Op; 2] = [Op::Gather { unit: 0, slot: 0 }, Op::Wait { unit: 0 }];

/// Element `i` of the gradients of `rank`.
fn gradient(rank: usize, i: usize) -> f32 {
    (1 + rank) as f32 / (3 + i) as f32
}

#[test]
fn a_gather_on_shared_memory_is_a_view_of_what_owners_write() {
    const RANKS: usize = 3;
    let config = Config { mesh: Mesh::of_zero(RANKS), stage: 3, ..Config::PLAIN };
    run(config, |mut ranks| {
        let (rank, arena, places) = (ranks.arena.rank(), ranks.arena.clone(), ranks.places());
        publish(&mut ranks);
        does(&mut ranks, &GATHER);
        // SAFETY: the view ends before anybody writes.
        let gathered = unsafe { arena.bytes(places.computed_on(0, 0)).cast::<f32>() }.as_slice();
        let len = gathered.len() / RANKS;
        for owner in 0..RANKS {
            let written = places.along(zero_plan::Axis::Zero, owner).shard(0);
            // SAFETY: as above.
            let written = unsafe { arena.bytes_of(owner, written) };
            let is_view = std::ptr::eq(&gathered[owner * len], written.address().cast());
            assert!(is_view, "rank {rank} reads a copy of the shard of rank {owner}");
        }
        barrier(&mut ranks);
        // SAFETY: no rank has a view between the barriers.
        unsafe { arena.bytes_mut(places.shard(0)).cast::<f32>() }.into_slice().fill(1.0 + rank as f32);
        barrier(&mut ranks);
        // SAFETY: no rank writes any more.
        let gathered = unsafe { arena.bytes(places.computed_on(0, 0)).cast::<f32>() }.as_slice();
        let seen: Vec<f32> = gathered.chunks(len).map(|shard| shard[len - 1]).collect();
        assert_eq!(seen, [1.0, 2.0, 3.0], "rank {rank} sees what owners wrote after the gather");
    });
}

/// A rank that leaves out a gather, or does it twice, moves a different number of bytes than the plan says.
#[test]
fn what_is_left_out_or_done_twice_shows_in_what_was_moved() {
    for (stage, transport, is_view) in [
        (3, TransportKind::Shm, true),
        (3, TransportKind::Local, false),
        (1, TransportKind::Shm, false),
        (2, TransportKind::Local, false),
    ] {
        let config = Config { mesh: Mesh::of_zero(3), stage, transport, ..Config::PLAIN };
        run(config, |mut ranks| {
            let planned = Moved::taken(ranks.plan, 0, &[Op::Gather { unit: 0, slot: 0 }]);
            let (copied, in_place) = (planned.copied.gather_bytes, planned.in_place.gather_bytes);
            assert_eq!((copied == 0, in_place == 0), (is_view, !is_view), "{config:?}");
            publish(&mut ranks);
            for times in 0..3 {
                assert_eq!(ranks.moved() == planned, times == 1, "{config:?}, gathered {times} times");
                let gathered = ranks.moved().all().gather_bytes;
                assert_eq!(gathered, times * (copied + in_place), "{config:?}, gathered {times} times");
                does(&mut ranks, &GATHER);
            }
        });
    }
}

/// Fills gradients, reduces them twice (if `micro_batches` says so), and compares with the definition.
fn reduces(count: usize, stage: u8, micro_batches: usize) {
    let config = Config { mesh: Mesh::of_zero(count), stage, micro_batches, bucket_bytes: 1, ..Config::PLAIN };
    run(config, |mut ranks| {
        let (rank, arena, places) = (ranks.arena.rank(), ranks.arena.clone(), ranks.places());
        let bucket = ranks.plan.placements[0].bucket;
        for round in 0..micro_batches {
            does(&mut ranks, &[Op::Claim { bucket }]);
            // SAFETY: peers have read what lies in the staging once it is claimed.
            let local = unsafe { arena.bytes_mut(places.local_gradients(0)).cast::<f32>() }.into_slice();
            local.iter_mut().enumerate().for_each(|(i, x)| *x = gradient(rank + round, i));
            does(&mut ranks, &[Op::Reduce { bucket, round }, Op::Settle { bucket, round }]);
        }
        let ops = vec![Op::Reduce { bucket, round: 0 }; micro_batches];
        assert_eq!(ranks.moved(), Moved::taken(ranks.plan, rank, &ops), "{config:?}: rank {rank}");
        // SAFETY: it is whole, and nobody adds to it.
        let sum = unsafe { arena.bytes(places.reduced(0)).cast::<f32>() }.as_slice();
        for (i, found) in sum.iter().enumerate() {
            let term = |round: usize, peer: usize| gradient(peer + round, rank * sum.len() + i);
            let tree = |round: usize| match count {
                2 => term(round, 0) + term(round, 1),
                _ => (term(round, 0) + term(round, 1)) + term(round, 2),
            };
            let expected = (1..micro_batches).fold(tree(0), |sum, round| sum + tree(round));
            assert_eq!(found.to_bits(), expected.to_bits(), "{config:?}: element {i} of rank {rank}");
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

/// In a debug build, a use after release shows in the loss.
#[test]
fn a_released_slot_is_nan_in_a_debug_build() {
    let config = Config { mesh: Mesh::of_zero(2), stage: 3, transport: TransportKind::Local, ..Config::PLAIN };
    run(config, |mut ranks| {
        let (arena, slot) = (ranks.arena.clone(), ranks.places().computed_on(0, 0));
        // SAFETY: the slot is this rank's own, and no view of it is kept.
        let slot = || unsafe { arena.bytes(slot).cast::<f32>() }.as_slice().to_vec();
        publish(&mut ranks);
        does(&mut ranks, &GATHER);
        assert!(slot().iter().all(|&x| x == 0.0), "before the release");
        does(&mut ranks, &[Op::Release { unit: 0 }]);
        assert_eq!(slot().iter().all(|x| x.is_nan()), cfg!(debug_assertions), "after it");
    });
}

#[test]
#[should_panic(expected = "makes another call than rank")]
fn an_exchange_for_different_reasons_ends_all_ranks() {
    let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN };
    let ended = std::sync::atomic::AtomicUsize::new(0);
    let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(config, |mut ranks| {
            let call = ranks.arena.rank() as u64;
            let exchange = std::panic::AssertUnwindSafe(|| exchange(&mut ranks, call));
            if let Err(panic) = std::panic::catch_unwind(exchange) {
                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        })
    }));
    assert_eq!(ended.into_inner(), 2, "one rank went on");
    std::panic::resume_unwind(all.expect_err("ranks that panic"));
}
