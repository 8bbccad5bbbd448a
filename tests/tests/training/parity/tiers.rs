//! Tiers: states that are kept outside the device and updated piece by piece have the bits of a run without offload, however
//! early or late a tier works, in memory and on a disk; and a tier that fails ends all ranks. A tier that lies shows that this
//! would notice an engine that does not wait.

use std::path::Path;
use std::time::Duration;

use zero_core::lost::Lost;
use zero_core::model::{Model, Program};
use zero_core::tier::{Direction, Tier};
use zero_engine::{Engine, RunError};
use zero_plan::place::State;
use zero_plan::{
    Config, Offload, Op, Plan, PlanBuf, Precision, TierBytes, TierKind, TransportKind, UpdateTime, Width, prove,
};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::{Cpu, Device};
use zero_tests::saved::{bits, resume, save};
use zero_tests::tiers::{
    Flaw, Haste, MemoryTier, can_keep_states, disk_tier, offloaded, offloaded_shards, offloaded_sums,
};
use zero_tests::tiny::{InBothWidths, Tied, Untied, VOCAB};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

use super::WIDTHS;

/// Losses and norms, and all states of all units, to the bit.
pub type Bits = (Vec<u64>, Vec<(usize, Vec<u32>)>);

const STEPS: u64 = 4;

/// The tier of a rank, if its plan keeps states in one.
pub type TierOf<'a> = &'a (dyn Fn(&Plan, usize) -> Box<dyn Tier> + Sync);

pub fn steps<'p, D: Device>(
    engine: &mut Engine<'p, D, Shared<'p, D>>,
    config: &Config,
    steps: u64,
) -> Result<Vec<u64>, RunError> {
    let (batch, rank) = (noise(*config), engine.arena().coordinates().data_rank(&config.mesh));
    let mut numbers = Vec::new();
    for step in engine.steps_done()..engine.steps_done() + steps {
        let report = engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets))?;
        numbers.extend([report.loss, report.gradient_norm].map(f64::to_bits));
    }
    Ok(numbers)
}

fn states<'p, D: Device>(engine: &Engine<'p, D, Shared<'p, D>>) -> Vec<(usize, Vec<u32>)> {
    let units = 0..engine.plan().units.len();
    let of_unit = |unit| State::ALL.into_iter().filter_map(move |state| engine.state(state, unit));
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect();
    units.flat_map(of_unit).map(|(stretch, numbers)| (stretch.start, bits(numbers))).collect()
}

/// The engine of a rank, with its tier.
pub fn engine<'p, D: Device>(
    program: &'static Program<D>,
    transport: Shared<'p, D>,
    tier: TierOf,
) -> Engine<'p, D, Shared<'p, D>> {
    let mut engine = Engine::new(program, transport);
    if engine.plan().config.offload.uses(TierKind::Disk) {
        let tier = tier(engine.plan(), engine.arena().rank());
        engine.keep_states_in(tier);
    }
    engine
}

/// Each rank's results of some steps, and the bytes that its tier has moved in them.
pub fn try_run<D: Device>(
    program: &'static Program<D>,
    config: Config,
    tier: TierOf,
) -> Vec<Result<(Bits, TierBytes), RunError>> {
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {config:?}"));
        let rank = |transport: Shared<'_, D>| {
            let mut engine = engine(program, transport, tier);
            engine.initialize(7);
            let numbers = steps(&mut engine, &config, STEPS)?;
            engine.finish_step()?;
            Ok(((numbers, states(&engine)), engine.moved_by_tier()))
        };
        local::run(plan, Result::is_err, rank).expect("the memory of a tiny model")
    })
}

/// Each rank's results of some steps, in which its tier has moved what is planned.
pub fn run<D: Device>(program: &'static Program<D>, config: Config, tier: TierOf) -> Vec<Bits> {
    let planned = |rank| {
        let of_step = |plan: &Plan| if config.offloads() { TierBytes::of(plan, rank) } else { Default::default() };
        let TierBytes { read, written } = PlanBuf::new("", config, program.plan.units).with(of_step);
        TierBytes { read: read * STEPS as usize, written: written * STEPS as usize }
    };
    let ranks = try_run(program, config, tier).into_iter().enumerate();
    let results = ranks.map(|(rank, result)| {
        let (bits, moved) = result.expect("no rank fails");
        assert_eq!(moved, planned(rank), "rank {rank}");
        bits
    });
    results.collect()
}

/// A configuration and, where ranks may do so, the same with updates at the use of parameters.
pub fn now_and_later(config: Config) -> impl Iterator<Item = Config> {
    let may = config.stage == 3 && config.mesh.pipeline == 1;
    let later = Config { offload: Offload { update: UpdateTime::AtUse, ..config.offload }, ..config };
    [config].into_iter().chain(may.then_some(later))
}

pub fn in_memory(haste: Haste) -> impl Fn(&Plan, usize) -> Box<dyn Tier> + Sync {
    move |plan, rank| Box::new(MemoryTier::new(plan, rank, haste))
}

pub fn on_disk(plan: &Plan, rank: usize) -> Box<dyn Tier> {
    disk_tier(env!("CARGO_TARGET_TMPDIR").as_ref(), plan, rank)
}

/// Widths with and without a master copy, and narrow moments.
pub fn widths() -> [Precision; 4] {
    let copied = Precision { params: Width::BF16, ..Precision::default() };
    let narrow = Precision { params: Width::BF16, moments: Width::BF16, reduce: Width::BF16, ..WIDTHS[1] };
    [WIDTHS[0], copied, Precision { moments: Width::BF16, ..Precision::default() }, narrow]
}

/// Compares a plan with and without offload. `tier` makes the tiers.
fn assert_same_bits(config: Config, prefetch: usize, tier: TierOf) {
    fn of<D: Device>(program: &'static Program<D>, config: Config, prefetch: usize, tier: TierOf) {
        let expected = run(program, config, tier);
        for offloaded in now_and_later(offloaded(config, prefetch)) {
            assert!(run(program, offloaded, tier) == expected, "{offloaded:?}");
        }
    }
    match config.precision.compute {
        Width::F32 => of(Tied::PROGRAM, config, prefetch, tier),
        Width::BF16 => of(<Tied as InBothWidths>::Narrow::PROGRAM, config, prefetch, tier),
    }
}

/// Clipping is on, and most steps are clipped. Blocks have two or three pieces, so slots rotate.
#[test]
fn offload_changes_no_bit_at_any_stage_in_any_width() {
    for stage in 0..=3 {
        for (at, precision) in widths().into_iter().enumerate() {
            let config = Config { mesh: mesh(1, 1, 2), precision, micro_batches: 1 + at % 3, ..CONFIG.at_stage(stage) };
            for haste in [Haste::AtOnce, Haste::AtLast] {
                assert_same_bits(config, [0, 1, 3][(stage as usize + at) % 3], &in_memory(haste));
            }
        }
    }
}

/// The device itself carries what its host keeps, here at once.
#[test]
fn offload_to_host_memory_changes_no_bit() {
    for (stage, precision) in (0..=3).zip(widths()) {
        let config = Config { mesh: mesh(1, 1, 2), precision, micro_batches: 2, ..CONFIG.at_stage(stage) };
        let offload = Offload { optimizer: TierKind::Host, ..offloaded(config, usize::from(stage)).offload };
        let in_no_tier = |_: &Plan, _: usize| unreachable!("nothing is on disk");
        fn of<D: Device>(program: &'static Program<D>, config: Config, offload: Offload, tier: TierOf) {
            assert!(run(program, Config { offload, ..config }, tier) == run(program, config, tier), "{config:?}");
        }
        match config.precision.compute {
            Width::F32 => of(Tied::PROGRAM, config, offload, &in_no_tier),
            Width::BF16 => of(<Tied as InBothWidths>::Narrow::PROGRAM, config, offload, &in_no_tier),
        }
    }
}

#[test]
fn offload_changes_no_bit_along_any_axis() {
    for (stage, mesh) in
        [(0, mesh(2, 1, 1)), (1, mesh(1, 2, 1)), (2, mesh(2, 1, 2)), (3, mesh(1, 2, 2)), (3, mesh(1, 1, 1))]
    {
        let transport = TransportKind::Shm;
        let config = Config { mesh, micro_batches: 2, transport, ..CONFIG.at_stage(stage) };
        assert_same_bits(config, 1, &in_memory(Haste::AtLast));
    }
}

/// Tiers that work whenever they please, whose fetches leave garbage until they end.
#[test]
fn offload_changes_no_bit_whenever_a_tier_works() {
    for seed in 0..24 {
        let stage = (seed % 4) as u8;
        let precision = widths()[seed as usize / 4 % 4];
        let config = Config { mesh: mesh(1, 1, 2), precision, micro_batches: 2, ..CONFIG.at_stage(stage) };
        assert_same_bits(config, [0, 1, 3][seed as usize % 3], &in_memory(Haste::AtRandom(seed)));
    }
}

/// The tests above would notice an engine that leaves out waits: a tier on which waits have no effect is one.
#[test]
fn waits_that_have_no_effect_are_noticed() {
    let config = Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(2) };
    let expected = run(Tied::PROGRAM, config, &in_memory(Haste::AtLast));
    for flaw in [Flaw::Overtakes, Flaw::SaysDone] {
        for haste in [Haste::AtLast, Haste::AtRandom(1), Haste::AtRandom(2)] {
            let tier = |plan: &Plan, rank: usize| -> Box<dyn Tier> {
                Box::new(MemoryTier::new(plan, rank, haste).with_flaw(flaw))
            };
            let found = try_run(Tied::PROGRAM, offloaded(config, 0), &tier);
            let is_same = |(found, expected): (Result<(Bits, TierBytes), RunError>, &Bits)| {
                found.is_ok_and(|(bits, _)| bits == *expected)
            };
            assert!(!found.into_iter().zip(&expected).all(is_same), "{flaw:?} with {haste:?} is not noticed");
        }
    }
}

#[test]
fn offload_to_a_disk_changes_no_bit() {
    if !can_keep_states(env!("CARGO_TARGET_TMPDIR").as_ref(), "offload to a disk") {
        return;
    }
    for stage in 0..=3 {
        let precision = widths()[usize::from(stage) % 2];
        let config = Config { mesh: mesh(1, 1, 2), precision, micro_batches: 2, ..CONFIG.at_stage(stage) };
        assert_same_bits(config, usize::from(stage), &on_disk);
    }
}

/// Compares a plan with and without offload of summed gradients, alone and beside optimizer states.
fn assert_same_sums(config: Config, prefetch: usize, tier: TierOf) {
    fn of<D: Device>(program: &'static Program<D>, config: Config, prefetch: usize, tier: TierOf) {
        let expected = run(program, config, tier);
        for optimizer in [TierKind::Device, TierKind::Disk] {
            for offloaded in now_and_later(offloaded_sums(config, prefetch, optimizer)) {
                assert!(run(program, offloaded, tier) == expected, "{offloaded:?}");
            }
        }
    }
    match config.precision.compute {
        Width::F32 => of(Untied::PROGRAM, config, prefetch, tier),
        Width::BF16 => of(<Untied as InBothWidths>::Narrow::PROGRAM, config, prefetch, tier),
    }
}

/// Buckets of one unit, and of all: with several micro-batches sums come back to be added to.
#[test]
fn offload_of_sums_changes_no_bit() {
    for (at, precision) in widths().into_iter().enumerate() {
        for (mesh, bucket_bytes) in
            [(mesh(1, 1, 2), 1), (mesh(1, 2, 1), usize::MAX), (mesh(1, 2, 2), 1), (mesh(2, 1, 2), 1)]
        {
            let transport = if at % 2 == 0 { TransportKind::Local } else { TransportKind::Shm };
            let config = Config { mesh, precision, transport, bucket_bytes, micro_batches: 1 + at % 3, ..CONFIG };
            for haste in [Haste::AtOnce, Haste::AtLast, Haste::AtRandom(at as u64)] {
                assert_same_sums(config.at_stage(2 + at as u8 % 2), [0, 1, 3][at % 3], &in_memory(haste));
            }
        }
    }
}

#[test]
fn offload_of_sums_to_a_disk_changes_no_bit() {
    if can_keep_states(env!("CARGO_TARGET_TMPDIR").as_ref(), "offload of sums to a disk") {
        let config = Config { mesh: mesh(1, 1, 2), micro_batches: 3, bucket_bytes: 1, ..CONFIG };
        [2, 3].into_iter().for_each(|stage| assert_same_sums(config.at_stage(stage), 1, &on_disk));
    }
}

/// Compares a plan with and without offload of shards of parameters, alone and beside other states.
fn assert_same_shards(config: Config, prefetch: usize, tier: TierOf) {
    fn of<D: Device>(
        program: &'static Program<D>,
        config: Config,
        offload: [TierKind; 2],
        prefetch: usize,
        tier: TierOf,
    ) {
        let expected = run(program, config, tier);
        for offloaded in now_and_later(offloaded_shards(config, prefetch, offload)) {
            assert!(run(program, offloaded, tier) == expected, "{offloaded:?}");
        }
    }
    type Narrow<M> = <M as InBothWidths>::Narrow;
    let is_tied = config.mesh.pipeline == 1;
    for optimizer in [TierKind::Device, TierKind::Disk] {
        let states = [optimizer, TierKind::Device];
        match (config.precision.compute, is_tied) {
            (Width::F32, true) => of(Tied::PROGRAM, config, states, prefetch, tier),
            (Width::F32, false) => of(Untied::PROGRAM, config, states, prefetch, tier),
            (Width::BF16, true) => of(Narrow::<Tied>::PROGRAM, config, states, prefetch, tier),
            (Width::BF16, false) => of(Narrow::<Untied>::PROGRAM, config, states, prefetch, tier),
        }
    }
    let all = [TierKind::Disk; 2];
    match config.precision.compute {
        Width::F32 => of(Untied::PROGRAM, config, all, prefetch, tier),
        Width::BF16 => of(Narrow::<Untied>::PROGRAM, config, all, prefetch, tier),
    }
}

#[test]
fn offload_of_shards_changes_no_bit() {
    let of_one_width = |precision: &Precision| precision.params == precision.compute;
    for (at, precision) in widths().into_iter().filter(of_one_width).enumerate() {
        for mesh in [mesh(1, 1, 2), mesh(1, 2, 2), mesh(2, 1, 2), mesh(1, 1, 1)] {
            let transport = if at % 2 == 0 { TransportKind::Shm } else { TransportKind::Local };
            let config =
                Config { mesh, precision, transport, prefetch: at, micro_batches: 1 + at, ..CONFIG.at_stage(3) };
            for haste in [Haste::AtOnce, Haste::AtLast, Haste::AtRandom(at as u64)] {
                assert_same_shards(config, [0, 1, 3][at], &in_memory(haste));
            }
        }
    }
}

#[test]
fn offload_of_shards_to_a_disk_changes_no_bit() {
    if can_keep_states(env!("CARGO_TARGET_TMPDIR").as_ref(), "offload of shards to a disk") {
        assert_same_shards(Config { mesh: mesh(1, 1, 2), micro_batches: 2, ..CONFIG.at_stage(3) }, 1, &on_disk);
    }
}

/// Each rank's results of evaluations, reads of whole units, steps and predictions, one after another, and its states.
pub fn walks(program: &'static Program<Cpu>, config: Config) -> Vec<Bits> {
    PlanBuf::new("", config, program.plan.units).with(|plan| {
        let rank = |transport: Shared<'_, Cpu>| {
            let mut engine = engine(program, transport, &in_memory(Haste::AtLast));
            engine.initialize(7);
            let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
            let mut numbers = Vec::new();
            for step in 0..3 {
                let loss = engine.evaluate(|part, ids, targets| batch(step, rank, part, ids, targets));
                numbers.push(loss.expect("no rank fails").to_bits());
                for unit in 0..plan.units.len() {
                    let flat = engine.parameters(unit).expect("no rank fails").expect("a unit of this rank");
                    numbers.extend(flat.into_iter().map(|number| u64::from(number.to_bits())));
                }
                numbers.extend(steps(&mut engine, &config, 1).expect("no rank fails"));
                let mut logits = [0.0; VOCAB];
                for before in 0..3 {
                    engine.decode(&[1 + before as u32], before, &mut logits).expect("no rank fails");
                    numbers.extend(logits.iter().map(|number| u64::from(number.to_bits())));
                }
                engine.require_finite().expect("finite parameters");
            }
            (numbers, states(&engine))
        };
        local::run(plan, |_| false, rank).expect("the memory of a tiny model")
    })
}

/// Evaluations, predictions and reads of whole units between steps, in any order, have the bits of shards in memory.
#[test]
fn shards_in_a_tier_serve_every_walk() {
    let config = Config { mesh: mesh(1, 1, 2), prefetch: 1, transport: TransportKind::Shm, ..CONFIG.at_stage(3) };
    for states in [[TierKind::Device; 2], [TierKind::Disk, TierKind::Device]] {
        for offloaded in now_and_later(offloaded_shards(config, 1, states)) {
            assert!(walks(Tied::PROGRAM, offloaded) == walks(Tied::PROGRAM, config), "{offloaded:?}");
        }
    }
}

/// Two steps and two more, each with states on disk or in memory, end like four without offload.
#[test]
fn a_run_goes_on_with_offload_switched_on_or_off() {
    let root = tempfile::tempdir().expect("a directory");
    for stage in [0, 3] {
        // Shards in a tier have the width that layers compute in.
        let precision = widths()[if stage == 3 { 2 } else { 1 }];
        let config = Config { mesh: mesh(1, 1, 2), precision, ..CONFIG.at_stage(stage) };
        let part = |config: Config, from: Option<&Path>, steps_each: u64, name: &str| {
            PlanBuf::new("", config, Tied::PLAN.units).with(|plan| {
                let rank = |transport: Shared<'_, Cpu>| {
                    let mut engine = engine(Tied::PROGRAM, transport, &in_memory(Haste::AtLast));
                    match from {
                        Some(path) => resume(&mut engine, path),
                        None => engine.initialize(7),
                    }
                    steps(&mut engine, &config, steps_each).expect("no rank fails");
                    engine.require_finite().expect("finite parameters");
                    save(&mut engine, &root.path().join(format!("{stage}-{name}")))
                };
                local::run(plan, |_| false, rank).expect("the memory of a tiny model").pop().expect("a rank")
            })
        };
        let whole = part(config, None, 4, "whole");
        let with = match stage {
            3 => offloaded_shards(config, 1, [TierKind::Disk, TierKind::Device]),
            _ => offloaded(config, 1),
        };
        let later = now_and_later(with).last().expect("a configuration");
        let ways = [
            (with, config, "off"),
            (config, with, "on"),
            (with, with, "both"),
            (later, with, "then"),
            (with, later, "later"),
        ];
        for (first, second, name) in ways {
            let begun = part(first, None, 2, &format!("{name}-begun"));
            let ended = part(second, Some(&begun), 2, &format!("{name}-ended"));
            for state in State::ALL {
                let expected = bits(&whole, state);
                let is_there = state != State::Master || precision.has_master_copy();
                assert_eq!(expected.is_some(), is_there);
                assert!(bits(&ended, state) == expected, "stage {stage}, {name}: {state:?}");
            }
        }
    }
}

/// A step whose loss is not finite changes no state, in the tier neither.
#[test]
fn a_step_that_is_not_finite_leaves_states_as_they_were() {
    let config = offloaded_shards(Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(3) }, 1, [TierKind::Disk; 2]);
    for config in now_and_later(config) {
        PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
            let rank = |transport: Shared<'_, Cpu>| {
                let mut engine = engine(Untied::PROGRAM, transport, &in_memory(Haste::AtLast));
                for unit in 0..Untied::PLAN.units.len() {
                    engine.load(unit, &vec![1e30; Untied::PLAN.units[unit].params]);
                }
                let before = states(&engine);
                for _ in 0..2 {
                    let error = steps(&mut engine, &config, 1).expect_err("an infinite loss");
                    assert!(matches!(error, RunError::NonFinite(_)), "{error}");
                    assert!(states(&engine) == before);
                }
            };
            local::run(plan, |_| false, rank).expect("the memory of a tiny model");
        });
    }
}

/// The rank whose tier fails reports the op of the failed order; the others learn that it has ended.
#[test]
fn z0413_a_tier_that_fails_ends_all_ranks() {
    let config = offloaded(Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(1) }, 1);
    let wrong = |flaw| {
        PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
            let rank = |transport: Shared<'_, Cpu>| {
                let mut engine = engine(Untied::PROGRAM, transport, &|plan, rank| {
                    let tier = MemoryTier::new(plan, rank, Haste::AtLast);
                    Box::new(if rank == 1 { tier.with_flaw(flaw) } else { tier })
                });
                engine.initialize(7);
                // The rank itself gives up before others give it up.
                let patience = if engine.arena().rank() == 1 { 300 } else { 30_000 };
                engine.set_timeout(Duration::from_millis(patience));
                steps(&mut engine, &config, 3)
            };
            let ranks = local::run(plan, Result::is_err, rank).expect("the memory of a tiny model");
            ranks.into_iter().map(|rank| rank.expect_err("a failure")).collect::<Vec<_>>()
        })
    };
    let pieces = PlanBuf::new("", config, Untied::PLAN.units)
        .with(|plan| plan.pipeline_stages[0].step.iter().filter(|op| matches!(op, Op::Fetch { .. })).count() as u64);
    for (direction, name) in [(Direction::Fetch, "fetch"), (Direction::Store, "store")] {
        for number in [1, pieces, pieces + 2] {
            let errors = wrong(Flaw::Fails(direction, number));
            let RunError::Lost(Lost::Device(broken)) = &errors[1] else { panic!("{:?}", errors[1]) };
            assert_eq!((broken.rank, broken.failure.code), (1, "Z0413"));
            assert!(broken.doing.starts_with(&format!("`{name} ")) && broken.doing.contains("piece"), "{broken}");
            assert_eq!(errors[0], RunError::Lost(Lost::Ended { rank: 1 }));
        }
        let errors = wrong(Flaw::Hangs(direction, pieces + 1));
        let RunError::Lost(Lost::Silent(silent)) = &errors[1] else { panic!("{:?}", errors[1]) };
        let transfer = format!(": `{name} embed`, piece 0, 4096 bytes at byte 0, 4096 bytes at byte ");
        assert!(silent.wait.contains(&transfer) && silent.wait.ends_with(" of its file"), "{silent}");
        assert_eq!((silent.rank, silent.waited), (1, Duration::from_millis(300)));
        assert_eq!(errors[0], RunError::Lost(Lost::Ended { rank: 1 }));
    }
}

#[test]
#[should_panic(expected = "`keep_states_in` comes first: the plan keeps states on disk")]
fn an_engine_without_its_tier_is_refused() {
    let config = offloaded(Config { mesh: mesh(1, 1, 1), ..CONFIG.at_stage(0) }, 1);
    PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
        let rank = |transport: Shared<'_, Cpu>| {
            let mut engine = Engine::new(Untied::PROGRAM, transport);
            engine.initialize(7);
            drop(steps(&mut engine, &config, 1));
        };
        local::run(plan, |_| false, rank).expect("the memory of a tiny model");
    });
}
