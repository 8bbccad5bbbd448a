//! Allocations: a step makes none, on any rank, at any stage, on any thread, profiled or not. Memory that the `gemm`
//! crate allocates within a call, to pack matrices, is counted separately.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use zero_core::device::Device;
use zero_core::device::Write;
use zero_core::model::{Model, Program};
use zero_cpu::Cpu;
use zero_cpu::{MatrixMut, StridedMatrix, inside_gemm, matmul};
use zero_engine::Engine;
use zero_plan::footprint::{PACKED_BYTES, PACKED_ROWS};
use zero_plan::{Config, OptimizerKind, PlanBuf, Recompute, TransportKind, Width};
use zero_ranks::transport::{Shared, local};
use zero_tests::tiers::{can_keep_states, disk_tier, offloaded};
use zero_tests::tiny::{Tall, Tied, VOCAB, narrow};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

struct Counting;

thread_local! {
    static COUNTS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    /// The most bytes that `gemm` has asked for at once.
    static LARGEST_PACKED: Cell<usize> = const { Cell::new(0) };
}

/// The counts of all threads.
static ALL_COUNTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

// SAFETY: passes every call on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (mut counts, which) = (COUNTS.get(), usize::from(inside_gemm()));
        counts[which] += 1;
        if inside_gemm() {
            LARGEST_PACKED.set(LARGEST_PACKED.get().max(layout.size()));
        }
        COUNTS.set(counts);
        ALL_COUNTS[which].fetch_add(1, Ordering::Relaxed);
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

/// The memory that `gemm` packs in is part of what the plan counts for a thread, however large the matrices are.
#[test]
fn what_gemm_packs_in_is_bounded() {
    let (rows, depth, cols) = (3 * PACKED_ROWS - 1, 700, 900);
    let (a, b, mut c) = (vec![1.0; rows * depth], vec![1.0; depth * cols], vec![0.0; rows * cols]);
    let (x, weight) = (StridedMatrix::new(&a, rows, depth), StridedMatrix::new(&b, depth, cols));
    matmul(MatrixMut::new(&mut c, rows, cols), x, weight, Write::Set);
    let by_columns =
        (StridedMatrix::new(&a, depth, rows).transposed(), StridedMatrix::new(&b, cols, depth).transposed());
    matmul(MatrixMut::new(&mut c, rows, cols), by_columns.0, by_columns.1, Write::Set);
    assert!(c.iter().all(|&sum| sum == depth as f32));
    let packed = LARGEST_PACKED.get();
    // Kernels for narrower registers process fewer rows at a time, and pack less.
    let least = if has_wide_registers() { PACKED_BYTES / 2 } else { PACKED_BYTES / 3 };
    assert!(packed > least && packed <= PACKED_BYTES, "{packed} of {PACKED_BYTES} bytes");
}

#[cfg(target_arch = "x86_64")]
fn has_wide_registers() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_wide_registers() -> bool {
    false
}

/// Three steps, an evaluation, and a prompt with two tokens after it.
fn steps<'p>(engine: &mut Engine<'p, Cpu, Shared<'p, Cpu>>) {
    let config = engine.plan().config;
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    for step in 0..3 {
        let report = engine.step(&HYPER, |micro_batch, ids, targets| batch(step, rank, micro_batch, ids, targets));
        assert!(report.is_ok_and(|report| report.loss.is_finite()));
    }
    assert!(engine.evaluate(|micro_batch, ids, targets| batch(9, rank, micro_batch, ids, targets)).is_ok());
    let mut logits = [0.0; VOCAB];
    for (before, ids) in [(0, &[1, 2, 3][..]), (3, &[4]), (4, &[5])] {
        assert!(engine.decode(ids, before, &mut logits).is_ok());
    }
}

/// The increase of `counts` by `work`.
fn added(counts: impl Fn() -> [usize; 2], work: impl FnOnce()) -> [usize; 2] {
    let before = counts();
    work();
    let after = counts();
    [after[0] - before[0], after[1] - before[1]]
}

/// Allocations of one rank: its own, and gemm's.
fn allocations(program: &'static Program<Cpu>, transport: Shared<Cpu>, is_profiled: bool) -> [usize; 2] {
    let mut engine = Engine::new(program, transport);
    if engine.plan().config.offloads() {
        let tier = disk_tier(env!("CARGO_TARGET_TMPDIR").as_ref(), engine.plan(), engine.arena().rank());
        engine.keep_states_in(tier);
    }
    engine.initialize(1);
    if is_profiled {
        engine.record(2);
    }
    let added = added(|| COUNTS.get(), || steps(&mut engine));
    assert_eq!(engine.take_record().map(|record| record.steps.len()), is_profiled.then_some(2));
    added
}

/// The same for all threads of the only rank, which share even the smallest work, after each of them has done some.
fn allocations_on_threads(program: &'static Program<Cpu>, transport: Shared<Cpu>) -> [usize; 2] {
    let work = |device: Cpu| {
        let mut engine = Engine::with_device(program, transport, device.eager());
        engine.initialize(1);
        // A thread allocates once, when it first takes work from another thread, which may be late on a busy machine.
        let mut tries = (0..100)
            .map(|_| added(|| ALL_COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed)), || steps(&mut engine)));
        tries.find(|&[own, _]| own == 0).expect("steps that allocate nothing, once both threads have had work")
    };
    Cpu::ONE_THREAD.on_threads(NonZeroUsize::new(2).expect("threads"), "test", work).expect("threads")
}

/// Runs `rank` as each rank of a plan and compares its counts with the promised ones.
fn assert_no_step_allocates(
    program: &'static Program<Cpu>,
    config: Config,
    rank: impl Fn(&'static Program<Cpu>, Shared<Cpu>) -> [usize; 2] + Sync,
) {
    let counts = PlanBuf::new("", config, program.plan.units).with(|plan| {
        local::run(plan, |_| false, |transport| rank(program, transport)).expect("the memory of a tiny model")
    });
    for [own, gemm] in counts {
        assert_eq!(own, 0, "{config:?}: {own} allocations in three steps");
        // Products of bf16 are packed in memory that a thread allocates once.
        let is_counted = gemm > 0 || config.precision.compute == Width::BF16;
        assert!(is_counted, "the counter counts nothing");
    }
}

#[test]
fn no_step_allocates() {
    let keeps_states = can_keep_states(env!("CARGO_TARGET_TMPDIR").as_ref(), "steps with offload");
    for transport in [TransportKind::Local, TransportKind::Shm] {
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
            let muon = Config { optimizer: OptimizerKind::Muon, ..config };
            assert_no_step_allocates(Tied::PROGRAM, muon, |program, transport| allocations(program, transport, false));
            assert_no_step_allocates(Tied::PROGRAM, config, |program, transport| {
                allocations(program, transport, false)
            });
            assert_no_step_allocates(Tied::PROGRAM, config, |program, transport| allocations(program, transport, true));
            if keeps_states {
                assert_no_step_allocates(Tied::PROGRAM, offloaded(config, 1), |program, transport| {
                    allocations(program, transport, false)
                });
            }
            let config = Config { precision: narrow::Tied::PLAN.config.precision, ..config };
            assert_no_step_allocates(narrow::Tied::PROGRAM, config, |program, transport| {
                allocations(program, transport, false)
            });
        }
    }
    // In the same test, because another test at the same time would allocate too.
    assert_no_step_allocates(Tied::PROGRAM, CONFIG.at_stage(3), allocations_on_threads);
    let muon = Config { optimizer: OptimizerKind::Muon, ..CONFIG.at_stage(3) };
    assert_no_step_allocates(Tied::PROGRAM, muon, allocations_on_threads);
    let narrowed = Config { precision: narrow::Tied::PLAN.config.precision, ..CONFIG.at_stage(3) };
    assert_no_step_allocates(narrow::Tied::PROGRAM, narrowed, allocations_on_threads);
    assert_no_step_allocates(Tall::PROGRAM, Config { sequences: 40, ..CONFIG.at_stage(3) }, allocations_on_threads);
}
