//! Activations: those that leave for a tier and come back before they are read change no bit, alone and beside all other
//! states, recomputed or not, however early or late a tier works. A tier that lies shows that an engine which does not wait
//! would be noticed.

use std::path::Path;

use zero_core::lost::Lost;
use zero_core::model::{Model, Program};
use zero_core::tier::{Direction, Tier};
use zero_engine::{FaultyPhase, RunError};
use zero_plan::{Config, Offload, Plan, PlanBuf, Recompute, TierKind, TransportKind, Width};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::{Cpu, Device};
use zero_tests::tiers::{Flaw, Haste, MemoryTier, can_keep_states};
use zero_tests::tiny::{Deep, InBothWidths, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::tiers::{TierOf, engine, in_memory, now_and_later, on_disk, run, steps, try_run, walks, widths};

/// The same with activations in a tier.
fn offloaded(config: Config, prefetch: usize) -> Config {
    let offload = Offload { activations: TierKind::Disk, prefetch, piece_bytes: 8192, ..config.offload };
    Config { offload, ..config }
}

/// A layout of a model with seven units, of which up to four send their activations away.
fn config(stage: u8, micro_batches: usize, recompute: Recompute) -> Config {
    Config { mesh: mesh(1, 1, 2), micro_batches, recompute, sequences: 1, length: 128, ..CONFIG.at_stage(stage) }
}

fn assert_same_bits(config: Config, prefetch: usize, tier: TierOf) {
    fn of<D: Device>(program: &'static Program<D>, config: Config, prefetch: usize, tier: TierOf) {
        let expected = run(program, config, tier);
        let offloaded = offloaded(config, prefetch);
        assert!(run(program, offloaded, tier) == expected, "{offloaded:?}");
    }
    match config.precision.compute {
        Width::F32 => of(Deep::PROGRAM, config, prefetch, tier),
        Width::BF16 => of(<Deep as InBothWidths>::Narrow::PROGRAM, config, prefetch, tier),
    }
}

const RECOMPUTED: [Recompute; 4] =
    [Recompute::None, Recompute::Every(1), Recompute::Every(2), Recompute::Fields(&["blocks"])];

#[test]
fn offload_of_activations_changes_no_bit() {
    for (at, precision) in widths().into_iter().enumerate() {
        for stage in 0..=3 {
            let recompute = RECOMPUTED[(at + usize::from(stage)) % 4];
            let config = Config { precision, ..config(stage, 1 + at % 3, recompute) };
            let haste = [Haste::AtOnce, Haste::AtLast, Haste::AtRandom(at as u64)][(at + usize::from(stage)) % 3];
            assert_same_bits(config, [0, 1, 3][at % 3], &in_memory(haste));
        }
    }
}

#[test]
fn offload_of_activations_changes_no_bit_whenever_a_tier_works() {
    for seed in 0..16 {
        let config = config([0, 3][seed % 2], 2, RECOMPUTED[seed / 2 % 4]);
        assert_same_bits(config, seed % 3, &in_memory(Haste::AtRandom(seed as u64)));
    }
}

#[test]
fn offload_of_activations_changes_no_bit_along_the_axes_of_data() {
    for (stage, mesh) in [(0, mesh(1, 1, 1)), (1, mesh(1, 2, 1)), (2, mesh(1, 2, 2)), (3, mesh(1, 2, 2))] {
        let config = Config { mesh, transport: TransportKind::Shm, ..config(stage, 2, Recompute::None) };
        assert_same_bits(config, 1, &in_memory(Haste::AtLast));
    }
}

/// All four states are in the tier.
#[test]
fn offload_of_everything_changes_no_bit() {
    let config = Config { mesh: mesh(1, 1, 2), micro_batches: 2, prefetch: 1, bucket_bytes: 1, ..CONFIG.at_stage(3) };
    let expected = run(Untied::PROGRAM, config, &in_memory(Haste::AtLast));
    let of_parameters =
        Offload { optimizer: TierKind::Disk, gradients: TierKind::Disk, parameters: TierKind::Disk, ..Offload::NONE };
    for recompute in [Recompute::None, Recompute::Every(1)] {
        let all = offloaded(Config { offload: of_parameters, recompute, ..config }, 0);
        for all in now_and_later(all) {
            for haste in [Haste::AtOnce, Haste::AtLast, Haste::AtRandom(3)] {
                assert!(run(Untied::PROGRAM, all, &in_memory(haste)) == expected, "{all:?}");
            }
        }
    }
}

#[test]
fn offload_of_activations_to_a_disk_changes_no_bit() {
    let folder: &Path = env!("CARGO_TARGET_TMPDIR").as_ref();
    if can_keep_states(folder, "offload of activations to a disk") {
        assert_same_bits(config(3, 2, Recompute::None), 1, &on_disk);
        assert_same_bits(config(0, 2, Recompute::Every(1)), 0, &on_disk);
    }
}

/// The tests above would notice an engine that leaves out waits: a tier on which waits have no effect is one.
#[test]
fn waits_that_have_no_effect_are_noticed() {
    let config = config(0, 2, Recompute::None);
    let expected = run(Deep::PROGRAM, config, &in_memory(Haste::AtLast));
    for flaw in [Flaw::Overtakes, Flaw::SaysDone] {
        for haste in [Haste::AtLast, Haste::AtRandom(1)] {
            let tier = |plan: &Plan, rank: usize| -> Box<dyn Tier> {
                Box::new(MemoryTier::new(plan, rank, haste).with_flaw(flaw))
            };
            let found = try_run(Deep::PROGRAM, offloaded(config, 0), &tier).into_iter().zip(&expected);
            let mut is_same = found.map(|(found, expected)| found.is_ok_and(|(bits, _)| bits == *expected));
            // A fetch needs no other wait for a store than that of the forward that overwrote what it stores.
            assert!(flaw == Flaw::Overtakes || !is_same.all(|same| same), "{flaw:?} with {haste:?} is not noticed");
        }
    }
}

/// Evaluations and decoding keep no activations, in their places neither.
#[test]
fn evaluations_and_decoding_do_without_the_tier() {
    for recompute in [Recompute::None, Recompute::Every(1), Recompute::Every(2)] {
        let config = config(3, 2, recompute);
        assert!(walks(Deep::PROGRAM, offloaded(config, 0)) == walks(Deep::PROGRAM, config), "{recompute:?}");
    }
}

/// A second run of the step looks for it, with the same trips.
#[test]
fn the_first_unit_that_goes_wrong_is_found() {
    let config = offloaded(config(3, 2, Recompute::None), 0);
    PlanBuf::new("", config, Deep::PLAN.units).with(|plan| {
        let rank = |transport: Shared<'_, Cpu>| {
            let mut engine = engine(Deep::PROGRAM, transport, &in_memory(Haste::AtLast));
            for (unit, sizes) in plan.units.iter().enumerate() {
                engine.load(unit, &vec![if unit == 2 { 1e30 } else { 0.1 }; sizes.params]);
            }
            steps(&mut engine, &config, 1).expect_err("a step that is not finite")
        };
        for error in local::run(plan, |_| false, rank).expect("the memory of a tiny model") {
            let RunError::NonFinite(found) = error else { panic!("{error}") };
            assert_eq!((found.unit.as_str(), found.phase), ("blocks[1]", FaultyPhase::Forward));
        }
    });
}

/// The error says which activations a tier has lost.
#[test]
fn z0413_a_tier_that_loses_activations_ends_all_ranks() {
    let config = offloaded(config(0, 2, Recompute::None), 0);
    for (flaw, of_op) in
        [(Flaw::Fails(Direction::Store, 6), "`store blocks[0]"), (Flaw::Fails(Direction::Fetch, 3), "`fetch blocks[0]")]
    {
        let tier = |plan: &Plan, rank: usize| -> Box<dyn Tier> {
            let tier = MemoryTier::new(plan, rank, Haste::AtOnce);
            Box::new(if rank == 1 { tier.with_flaw(flaw) } else { tier })
        };
        let results = try_run(Deep::PROGRAM, config, &tier);
        let of_rank = |rank: usize| results[rank].as_ref().expect_err("all ranks end").to_string();
        assert!(of_rank(1).contains("error[Z0413]") && of_rank(1).contains(of_op), "{}", of_rank(1));
        assert!(matches!(results[0], Err(RunError::Lost(Lost::Ended { rank: 1 }))), "{}", of_rank(0));
    }
}
