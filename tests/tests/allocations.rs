//! Allocations: a step makes none, on any rank, at any stage. What the `gemm` crate takes within a call to pack matrices
//! in is counted apart, by its name.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use zero_plan::config::Recompute;
use zero_plan::{Config, PlanBuf, Transport};
use zero_runtime::device::cpu::inside_gemm;
use zero_runtime::engine::Engine;
use zero_runtime::model::Model;
use zero_runtime::transport::{Shared, local};
use zero_tests::tiny::Tied;
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

struct Counting;

thread_local! {
    static COUNTS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

// SAFETY: hands every call on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut counts = COUNTS.get();
        counts[usize::from(inside_gemm())] += 1;
        COUNTS.set(counts);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of one rank in three steps and an evaluation: its own, and gemm's.
fn allocations(transport: Shared) -> [usize; 2] {
    let mut engine = Engine::<Tied, _>::new(transport);
    let config = engine.plan().config;
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    engine.initialize(1);
    let before = COUNTS.get();
    for step in 0..3 {
        let report = engine.step(&HYPER, |micro_batch, ids, targets| batch(step, rank, micro_batch, ids, targets));
        assert!(report.is_ok_and(|report| report.loss.is_finite()));
    }
    assert!(engine.evaluate(|micro_batch, ids, targets| batch(9, rank, micro_batch, ids, targets)).is_ok());
    let after = COUNTS.get();
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn no_step_allocates() {
    for transport in [Transport::Local, Transport::Shm] {
        for (stage, mesh, micro_batches) in [
            (0, mesh(1, 1, 1), 1),
            (0, mesh(1, 1, 3), 2),
            (1, mesh(2, 1, 1), 2),
            (2, mesh(1, 2, 2), 2),
            (3, mesh(1, 1, 1), 1),
            (3, mesh(2, 2, 2), 2),
        ] {
            let config =
                Config { mesh, micro_batches, transport, recompute: Recompute::Every(2), ..CONFIG.at_stage(stage) };
            let counts = PlanBuf::new("", config, Tied::PLAN.units)
                .with(|plan| local::run(plan, |_| false, allocations).expect("the memory of a tiny model"));
            for [own, gemm] in counts {
                assert_eq!(own, 0, "{config:?}: {own} allocations in three steps");
                assert!(gemm > 0, "the counter counts nothing");
            }
        }
    }
}
