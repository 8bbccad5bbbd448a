//! States and activations in host memory, and on a disk behind it: they have the bits of states on the device, op by op, in
//! graphs and profiled, in whatever order a device works. Host memory is one allocation, of the planned size. A disk that
//! fails or falls silent ends all ranks.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zero_core::device::{HostOptimizer, Queues, Storage};
use zero_core::lost::Lost;
use zero_core::model::{Model, Program};
use zero_core::tier::{After, Direction, FailedOrder, Tier, Transfer};
use zero_cpu::HostThreads;
use zero_cuda::Cuda;
use zero_engine::{Engine, RunError};
use zero_files::testing::tier_in_memory;
use zero_files::tier::DiskTier;
use zero_plan::place::State;
use zero_plan::{Config, Home, Offload, Plan, PlanBuf, Precision, TierBytes, TierKind, UpdatePlace, Width, prove};
use zero_ranks::transport::{Shared, local};
use zero_runtime::prelude::*;
use zero_tests::layout::{CUDA, changed};
use zero_tests::long::is_left_out;
use zero_tests::pretend;
use zero_tests::saved::{bits, resume, save};
use zero_tests::specs::cuda_program;
use zero_tests::tiny::{DIM, TinyBlock, VOCAB};
use zero_tests::training::{HYPER, noise};

/// One step op by op, two that are captured, and two that are launched again.
pub const STEPS: u64 = 5;

/// How steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Eager,
    Graphs,
    Profiled,
}

/// A GPT with a head of its own, because sums of gradients of tied parameters stay on the device.
#[zero(spec = "../specs/zero3.ron", device = zero_runtime::device::Cuda)]
pub struct Untied {
    embed: Embedding<VOCAB, 128, DIM>,
    blocks: [TinyBlock; 4],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

/// Losses and norms, and all states of all units, to the bit.
type Bits = (Vec<u64>, Vec<Vec<u32>>);

/// Steps of a rank, with what they are to be compared in.
pub fn steps<'p>(engine: &mut Engine<'p, Cuda, Shared<'p, Cuda>>, count: u64) -> Result<Vec<u64>, RunError> {
    let config = engine.plan().config;
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    let mut numbers = Vec::new();
    for step in engine.steps_done()..engine.steps_done() + count {
        let report = engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets))?;
        numbers.extend([report.loss, report.gradient_norm].map(f64::to_bits));
    }
    Ok(numbers)
}

fn states<'p>(engine: &Engine<'p, Cuda, Shared<'p, Cuda>>) -> Vec<Vec<u32>> {
    let of_unit = |unit| State::ALL.into_iter().filter_map(move |state| engine.state(state, unit));
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect();
    (0..engine.plan().units.len()).flat_map(of_unit).map(|(_, numbers)| bits(numbers)).collect()
}

/// Runs each rank of a plan on a pretend device of its own.
pub fn on_ranks<R: Send>(
    program: &'static Program<Cuda>,
    config: Config,
    rank: impl for<'p> Fn(&mut Engine<'p, Cuda, Shared<'p, Cuda>>) -> R + Sync,
) -> Vec<R> {
    let tier = |bytes, rank| Box::new(tier_in_memory(bytes, bytes, rank).expect("a file in memory")) as Box<dyn Tier>;
    on_ranks_with(program, config, tier, rank)
}

/// [`on_ranks`], with these tiers in place of a disk: of so many bytes, for a rank.
fn on_ranks_with<R: Send>(
    program: &'static Program<Cuda>,
    config: Config,
    tier: impl Fn(usize, usize) -> Box<dyn Tier> + Sync,
    rank: impl for<'p> Fn(&mut Engine<'p, Cuda, Shared<'p, Cuda>>) -> R + Sync,
) -> Vec<R> {
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {config:?}"));
        let of_rank = |transport: Shared<'_, Cuda>| {
            let mut engine = Engine::new(program, transport);
            if plan.config.updates_on_host() {
                let threads = NonZeroUsize::new(2).expect("a number that is not 0");
                let optimizer: Arc<dyn HostOptimizer> = Arc::new(HostThreads::start(threads, "host").expect("threads"));
                engine.update_on_host(&optimizer);
            }
            if plan.config.offload.uses(TierKind::Disk) {
                let rank = engine.arena().rank();
                engine.keep_states_in(tier(plan.of_rank(rank).memory.bytes_of(Home::Disk), rank));
            }
            rank(&mut engine)
        };
        local::run(plan, |_| false, of_rank).expect("the memory of a tiny model")
    })
}

/// Compares what a rank has taken and moved in some steps with its plan.
fn assert_as_planned<'p>(engine: &Engine<'p, Cuda, Shared<'p, Cuda>>, steps: u64) {
    let (plan, rank): (&Plan, usize) = (engine.plan(), engine.arena().rank());
    assert_eq!(engine.arena().host_bytes(), plan.of_rank(rank).memory.bytes_of(Home::Host));
    let (planned, moved) = (TierBytes::of(plan, rank), engine.moved_by_tier());
    assert_eq!([moved.read, moved.written], [planned.read, planned.written].map(|bytes| bytes * steps as usize));
    assert!((planned.read > 0) == plan.config.offloads());
}

fn run(program: &'static Program<Cuda>, config: Config, way: Way) -> Vec<Bits> {
    on_ranks(program, config, |engine| {
        engine.run_eagerly(way == Way::Eager);
        engine.initialize(7);
        if way == Way::Profiled {
            engine.record(STEPS as usize);
        }
        let numbers = steps(engine, STEPS).expect("steps without faults");
        assert_as_planned(engine, STEPS);
        (numbers, states(engine))
    })
}

/// A layout of a spec, with masters if parameters are to be narrow.
pub fn config(program: &Program<Cuda>, stage: u8, is_narrow: bool) -> Config {
    let config = changed(program.plan.config, &[CUDA, "mesh=1x1x2", "prefetch=1", "micro_batches=2"]);
    let params = if is_narrow { Width::BF16 } else { Width::F32 };
    let precision = Precision { params, ..config.precision };
    Config { precision, ..config.at_stage(stage) }
}

/// The same with optimizer states in host memory. Blocks have two pieces, so slots rotate.
pub fn offloaded(config: Config, prefetch: usize) -> Config {
    Config { offload: Offload { optimizer: TierKind::Host, prefetch, piece_bytes: 8192, ..Offload::NONE }, ..config }
}

/// The same with sums of gradients there too, where a rank has its share of them. Buckets are small, so they take turns with
/// slots.
fn with_sums(config: Config) -> Config {
    let gradients = if config.stage >= 2 { TierKind::Host } else { TierKind::Device };
    Config { offload: Offload { gradients, ..config.offload }, bucket_bytes: 1, ..config }
}

/// The same with activations there too.
fn with_activations(config: Config) -> Config {
    Config { offload: Offload { activations: TierKind::Host, ..config.offload }, ..config }
}

/// The same, updated by the host.
pub fn on_host(config: Config) -> Config {
    Config { offload: Offload { update_on: UpdatePlace::Host, ..config.offload }, ..config }
}

/// The same with parameters there too, gathered this many uses ahead.
pub fn with_parameters(config: Config, prefetch: usize) -> Config {
    Config { offload: Offload { parameters: TierKind::Host, ..config.offload }, prefetch, ..config }
}

/// Numbers of the orders of work in which a test runs.
pub fn seeds() -> core::ops::RangeInclusive<u64> {
    if is_left_out("other orders of work of devices whose hosts keep states") { 1..=2 } else { 1..=20 }
}

/// Most steps are clipped.
#[test]
fn states_in_host_memory_change_no_bit() {
    if !pretend::is_cuda() {
        return;
    }
    let seeds = seeds();
    // Each order of work with one layout, and each layout with some of them.
    let layouts = [(1, false), (2, true), (3, false), (3, true)];
    for (at, (stage, is_narrow)) in layouts.into_iter().enumerate() {
        let orders: Vec<u64> = seeds.clone().filter(|seed| *seed as usize % layouts.len() == at).collect();
        if orders.is_empty() {
            continue;
        }
        for (program, has_sums) in [(cuda_program("zero3"), false), (Untied::PROGRAM, true)] {
            let config = config(program, stage, is_narrow);
            pretend::seed(0);
            let expected = run(program, config, Way::Eager);
            for &seed in orders.iter().filter(|seed| (*seed % 8 < 4) == has_sums) {
                pretend::seed(seed);
                let offloaded = offloaded(config, seed as usize % 3);
                let offloaded = if has_sums { with_sums(offloaded) } else { offloaded };
                let offloaded = if seed % 2 == 0 { with_activations(offloaded) } else { offloaded };
                for way in [Way::Eager, Way::Graphs, Way::Profiled] {
                    let found = run(program, offloaded, way);
                    let layout = offloaded.offload;
                    assert!(found == expected, "{layout:?}, narrow {is_narrow}, seed {seed}, {way:?}: other bits");
                }
            }
        }
    }
}

/// Whether the host has the sums, or gets them, and with master copies or without.
#[test]
fn updates_on_the_host_change_no_bit() {
    if !pretend::is_cuda() {
        return;
    }
    let layouts = [(1, true), (2, true), (3, false), (3, true), (0, false), (2, false)];
    for seed in seeds() {
        let (stage, is_narrow) = layouts[seed as usize % layouts.len()];
        for (program, has_sums) in [(cuda_program("zero3"), false), (Untied::PROGRAM, true)] {
            if has_sums == (seed % 2 == 0) {
                continue;
            }
            let config = config(program, stage, is_narrow);
            // Parameters are tied across pipeline stages, which send one another what their hosts have updated.
            let is_piped = seed % 4 == 2;
            let config = if is_piped { changed(config, &["mesh=2x1x2"]) } else { config };
            pretend::seed(0);
            let expected = run(program, config, Way::Eager);
            pretend::seed(seed);
            let there = on_host(offloaded(config, seed as usize % 4));
            let there = if has_sums { with_sums(there) } else { there };
            let there = if seed % 4 < 2 && !is_piped { with_activations(there) } else { there };
            for way in [Way::Eager, Way::Graphs, Way::Profiled] {
                let (found, layout) = (run(program, there, way), there.offload);
                let what = format!("stage {stage}, {layout:?}, narrow {is_narrow}, seed {seed}, {way:?}");
                assert!(found == expected, "{what}: other bits");
            }
        }
    }
}

/// Steps, evaluations and whole parameters of a rank, in turn.
fn used<'p>(engine: &mut Engine<'p, Cuda, Shared<'p, Cuda>>, way: Way) -> Bits {
    let config = engine.plan().config;
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    engine.run_eagerly(way == Way::Eager);
    engine.initialize(7);
    if way == Way::Profiled {
        engine.record(STEPS as usize);
    }
    let (mut numbers, mut whole) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        numbers.extend(steps(engine, 1).expect("a step without faults"));
        if step % 2 == 0 {
            let batch = |part: usize, ids: &mut [u32], targets: &mut [u32]| batch(step, rank, part, ids, targets);
            let mean = engine.evaluate(batch).expect("an evaluation");
            numbers.push(mean.to_bits());
        }
        for unit in (0..engine.plan().units.len()).filter(|_| step > 2) {
            let flat = engine.parameters(unit).expect("parameters of all ranks").unwrap_or_default();
            whole.push(flat.into_iter().map(f32::to_bits).collect());
        }
    }
    whole.extend(states(engine));
    (numbers, whole)
}

/// Alone, beside other states, and with all of them on the host, which updates them.
#[test]
fn parameters_in_host_memory_change_no_bit() {
    if !pretend::is_cuda() {
        return;
    }
    for seed in seeds() {
        let (program, has_sums) = if seed % 2 == 0 { (cuda_program("zero3"), false) } else { (Untied::PROGRAM, true) };
        let here = changed(config(program, 3, false), &[["mesh=1x1x2", "mesh=1x1x3", "mesh=1x2x2"][seed as usize % 3]]);
        pretend::seed(0);
        let expected = on_ranks(program, here, |engine| used(engine, Way::Eager));
        pretend::seed(seed);
        let prefetch = seed as usize % 4;
        let there = match seed % 5 {
            0 => here,
            _ => offloaded(here, prefetch),
        };
        let there = if has_sums { with_sums(there) } else { there };
        let there = with_parameters(there, prefetch);
        let there = if seed % 5 > 2 { on_host(there) } else { there };
        for way in [Way::Eager, Way::Graphs, Way::Profiled] {
            let found = on_ranks(program, there, |engine| used(engine, way));
            assert!(found == expected, "{:?}, prefetch {prefetch}, seed {seed}, {way:?}: other bits", there.offload);
        }
    }
}

/// A step whose loss is not finite changes no state, in host memory neither; nor do steps that repeat it.
#[test]
fn a_step_that_is_not_finite_leaves_states_as_they_were() {
    if !pretend::is_cuda() {
        return;
    }
    let program = Untied::PROGRAM;
    for seed in seeds() {
        pretend::seed(seed);
        let there = |is_narrow| with_sums(offloaded(config(program, 3, is_narrow), 1));
        let odd = [there(false), on_host(there(true))];
        let even = [on_host(offloaded(config(program, 3, true), 1)), on_host(there(false))];
        for config in if seed % 2 == 1 { odd } else { even } {
            on_ranks(program, config, |engine| {
                for unit in 0..program.plan.units.len() {
                    engine.load(unit, &vec![1e30; program.plan.units[unit].params]);
                }
                let before = states(engine);
                for _ in 0..STEPS {
                    let error = steps(engine, 1).expect_err("an infinite loss");
                    assert!(matches!(error, RunError::NonFinite(_)), "{error}");
                    assert!(states(engine) == before, "seed {seed}: other states");
                }
            });
        }
    }
}

/// Three steps and three more, each with states on the device or on its host, end like six on the device.
#[test]
fn a_run_goes_on_with_states_elsewhere() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let program = Untied::PROGRAM;
    let here = config(program, 3, true);
    let part = |config: Config, from: Option<&Path>, count: u64, name: &str| {
        let saved = on_ranks(program, config, |engine| {
            match from {
                Some(path) => resume(engine, path),
                None => engine.initialize(7),
            }
            steps(engine, count).expect("steps without faults");
            engine.require_finite().expect("finite parameters");
            save(engine, &root.path().join(name))
        });
        saved.into_iter().next().expect("a rank")
    };
    let (whole, there) = (part(here, None, 6, "whole"), with_sums(offloaded(here, 1)));
    let cases = [(there, here, "off"), (here, there, "on"), (there, there, "both")];
    let on_host = on_host(offloaded(here, 1));
    for (first, second, name) in cases.into_iter().chain([(on_host, here, "host"), (there, on_host, "to-host")]) {
        let begun = part(first, None, 3, &format!("{name}-begun"));
        let ended = part(second, Some(&begun), 3, &format!("{name}-ended"));
        for state in State::ALL {
            let expected = bits(&whole, state);
            assert!(expected.is_some() && bits(&ended, state) == expected, "{name}: {state:?}");
        }
    }
}

/// Allocations of pinned memory before the start of ranks; and of each rank those after that, and what its device reports
/// to be pinned for its own use.
fn pinned(program: &'static Program<Cuda>, config: Config) -> (u64, Vec<(u64, usize)>) {
    let allocations = || pretend::count("cuMemHostAlloc");
    let before = allocations();
    let ranks = on_ranks(program, config, |engine| {
        engine.initialize(7);
        steps(engine, STEPS).expect("steps without faults");
        let outside = engine.device().outside();
        let (_, bytes) = outside.iter().find(|(what, _)| *what == "pinned for its GPU").expect("a figure");
        (allocations(), *bytes)
    });
    // This thread makes the arenas of all ranks.
    (allocations() - before, ranks)
}

/// It is made before the first step, and ranks then pin no more than without it.
#[test]
fn host_memory_is_one_allocation_of_the_planned_size() {
    // Only the pretend driver counts calls.
    if pretend::libraries().is_none() || !pretend::is_cuda() {
        return;
    }
    let program = Untied::PROGRAM;
    let config = config(program, 3, true);
    let (there, (at_start, ranks)) = (with_sums(offloaded(config, 1)), pinned(program, config));
    for there in [there, on_host(there), on_host(offloaded(config, 1))] {
        assert_eq!(pinned(program, there), (at_start + config.mesh.ranks() as u64, ranks.clone()));
    }
}

/// The same on a disk, which a device cannot reach: alone, and beside states in host memory.
fn on_disk(config: Config, which: impl Fn(usize) -> bool) -> Config {
    let mut offload = config.offload;
    let states = [&mut offload.optimizer, &mut offload.gradients, &mut offload.parameters, &mut offload.activations];
    for (at, state) in states.into_iter().enumerate() {
        *state = if *state == TierKind::Host && which(at) { TierKind::Disk } else { *state };
    }
    Config { offload, ..config }
}

/// Steps, evaluations and whole parameters, with any of the states on a disk.
#[test]
fn states_on_disk_change_no_bit() {
    if !pretend::is_cuda() {
        return;
    }
    for seed in seeds() {
        let (program, has_sums) = if seed % 2 == 0 { (cuda_program("zero3"), false) } else { (Untied::PROGRAM, true) };
        let stage = [3, 2, 1][seed as usize % 3];
        let here = config(program, stage, seed % 4 < 2 && stage < 3);
        pretend::seed(0);
        let expected = on_ranks(program, here, |engine| used(engine, Way::Eager));
        pretend::seed(seed);
        let prefetch = seed as usize % 4;
        let there = offloaded(here, prefetch);
        let there = if has_sums { with_sums(there) } else { there };
        let there = if stage == 3 { with_parameters(there, prefetch) } else { there };
        let there = if seed % 4 > 1 { with_activations(there) } else { there };
        // Optimizer states always, and of the others some.
        let there = on_disk(there, |at| at == 0 || (seed >> at) % 2 == 0);
        for way in [Way::Eager, Way::Graphs, Way::Profiled] {
            let found = on_ranks(program, there, |engine| {
                let found = used(engine, way);
                assert_as_planned(engine, STEPS);
                found
            });
            assert!(found == expected, "{:?}, seed {seed}, {way:?}: other bits", there.offload);
        }
    }
}

/// A tier that carries out no order of a queue after this many. If it never falls silent, it takes its time to say that it
/// has not failed, so that a failure is known when ranks agree in the middle of a step.
struct Silent(DiskTier, Direction, u64);

// SAFETY: orders that are carried out are those of the tier within; the others touch nothing.
unsafe impl Tier for Silent {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    unsafe fn order(&mut self, direction: Direction, transfers: &[Transfer], after: After) {
        if direction == self.1 && self.2 < u64::MAX {
            self.2 = self.2.saturating_sub(1);
        }
        if direction != self.1 || self.2 > 0 {
            // SAFETY: by the caller's promise.
            unsafe { self.0.order(direction, transfers, after) };
        }
    }

    fn is_done(&mut self, direction: Direction, count: u64, patience: Duration) -> bool {
        self.0.is_done(direction, count, patience)
    }

    fn failed(&self) -> Option<FailedOrder> {
        if self.2 == u64::MAX && self.0.failed().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.0.failed()
    }

    fn moved(&self) -> TierBytes {
        self.0.moved()
    }

    fn quit(&mut self, patience: Duration) -> bool {
        self.0.quit(patience)
    }
}

/// A file that ends early, and a disk that falls silent in a step: the rank that has it names the op, the piece and the bytes,
/// the other one learns who has ended, and no device is left waiting.
#[test]
fn a_disk_that_fails_or_falls_silent_ends_all_ranks() {
    if !pretend::is_cuda() {
        return;
    }
    let program = cuda_program("zero3");
    let there = on_disk(offloaded(config(program, 3, false), 1), |_| true);
    let cases = [(Direction::Fetch, None), (Direction::Fetch, Some(40)), (Direction::Store, Some(30))];
    for ((direction, silent_after), way) in cases.into_iter().flat_map(|case| [(case, Way::Eager), (case, Way::Graphs)])
    {
        pretend::seed(3);
        let tier = |bytes: usize, rank: usize| -> Box<dyn Tier> {
            let there = if rank == 1 && silent_after.is_none() { bytes / 2 } else { bytes };
            let tier = tier_in_memory(bytes, there, rank).expect("a file in memory");
            match rank {
                1 => Box::new(Silent(tier, direction, silent_after.unwrap_or(u64::MAX))),
                _ => Box::new(tier),
            }
        };
        let ended = on_ranks_with(program, there, tier, |engine| {
            engine.run_eagerly(way == Way::Eager);
            engine.set_timeout(Duration::from_secs(2));
            engine.initialize(7);
            let error = steps(engine, STEPS).expect_err("a step without its states");
            assert!(engine.device().is_idle(), "{way:?}: the device still waits after {error}");
            error
        });
        let text = ended.iter().map(RunError::to_string).collect::<Vec<_>>();
        assert!(matches!(ended[0], RunError::Lost(Lost::Ended { rank: 1 })), "{way:?}: {text:?}");
        match silent_after {
            None => {
                let RunError::Lost(Lost::Device(broken)) = &ended[1] else { panic!("{way:?}: {text:?}") };
                assert_eq!(broken.failure.code, "Z0413");
                assert!(broken.doing.contains(", piece "), "{way:?}: {text:?}");
            }
            Some(_) => {
                assert!(text[1].contains(", piece ") && text[1].contains(" bytes at byte "), "{way:?}: {text:?}")
            }
        }
    }
}
