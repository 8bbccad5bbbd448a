//! Publish: the copies that ranks offer to readers have the bits of what they own after each step, whatever the layout and wherever
//! states are kept, and training with them has the bits of training without.

use zero_core::model::{Model, Program};
use zero_core::published::PublishedCopies;
use zero_core::tier::Tier;
use zero_plan::{Config, OptimizerKind, Plan, PlanBuf, Precision, Publish, TierKind, TransportKind, Width, prove};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::Device;
use zero_tests::saved::offered;
use zero_tests::tiers::{Haste, MemoryTier, offloaded, offloaded_shards, offloaded_sums};
use zero_tests::tiny::{InBothWidths, Tied, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::WIDTHS;
use super::tiers::{engine, now_and_later, steps};

const STEPS: u64 = 4;

/// The losses and norms of a rank, which publishes before the first step and after each one.
fn rank<'p, D: Device>(
    program: &'static Program<D>,
    config: &Config,
    transport: Shared<'p, D>,
) -> (Vec<u64>, Vec<Vec<u8>>) {
    let tier = |plan: &Plan, rank: usize| Box::new(MemoryTier::new(plan, rank, Haste::AtRandom(3))) as Box<dyn Tier>;
    let mut engine = engine(program, transport, &tier);
    engine.initialize(7);
    let (mut numbers, mut offers) = (Vec::new(), Vec::new());
    for step in 0..=STEPS {
        if step > 0 {
            numbers.extend(steps(&mut engine, config, 1).expect("a step"));
        }
        if !config.publishes() {
            continue;
        }
        engine.publish().expect("a publication");
        let copies = engine.copies().expect("a plan with copies");
        offers.push(offered(&engine));
        // Each copy that the plan has room for is one of the last ones, whole.
        let mut found = vec![0; copies.bytes()];
        for (before, offered) in offers.iter().enumerate() {
            let is_there = before + config.publish.copies > step as usize;
            assert_eq!(copies.read(before as u64, 0, &mut found), is_there, "{before} after {step}: {config:?}");
            // It ends with its last line.
            assert!(found.len() - offered.len() < 64);
            assert!(!is_there || found[..offered.len()] == *offered, "{before} after {step}: {config:?}");
        }
        let (start, mut part) = (copies.bytes() / 3, vec![0; copies.bytes() / 4]);
        assert!(copies.read(step, start, &mut part) && part == offers[step as usize][start..][..part.len()]);
    }
    engine.finish_step().expect("updates that are due");
    (numbers, offers)
}

fn check<M: InBothWidths>(config: Config) {
    fn results<D: Device>(program: &'static Program<D>, config: Config) -> Vec<(Vec<u64>, Vec<Vec<u8>>)> {
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {config:?}"));
            local::run(plan, |_| false, |transport| rank(program, &config, transport))
                .expect("the memory of a tiny model")
        })
    }
    let run = |config: Config| match config.precision.compute {
        Width::F32 => results(M::PROGRAM, config),
        Width::BF16 => results(M::Narrow::PROGRAM, config),
    };
    let without = run(config);
    for dtype in [Width::F32, Width::BF16] {
        for copies in [1, 2, 3] {
            let config = Config { publish: Publish { dtype, copies }, ..config };
            if config.can_publish() {
                let with = run(config);
                let numbers = |all: &[(Vec<u64>, Vec<Vec<u8>>)]| all.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
                assert_eq!(numbers(&with), numbers(&without), "{config:?}");
                let offers = &with[0].1;
                assert!(offers[1] != offers[0], "a step changes what is offered");
            }
        }
    }
}

#[test]
fn copies_have_the_bits_of_what_ranks_own() {
    let transports = [TransportKind::Local, TransportKind::Shm];
    for (stage, precision) in (0..4).flat_map(|stage| WIDTHS.map(|precision| (stage, precision))) {
        let config = Config { precision, transport: transports[stage as usize % 2], ..CONFIG.at_stage(stage) };
        check::<Tied>(Config { mesh: mesh(1, 2, 2), ..config });
        check::<Untied>(Config { mesh: mesh(2, 1, 2), micro_batches: 2, ..config });
    }
    let alone = Config { mesh: mesh(1, 1, 1), ..CONFIG.at_stage(0) };
    check::<Tied>(alone);
    check::<Untied>(Config { optimizer: OptimizerKind::Muon, mesh: mesh(1, 1, 2), ..CONFIG.at_stage(2) });
}

/// Copies are made of shards that come from a tier, and after updates that are due.
#[test]
fn states_in_a_tier_are_published() {
    let base = Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(3) };
    let narrow = Precision { compute: Width::BF16, params: Width::BF16, ..Precision::default() };
    let optimizer = [offloaded(base, 1), offloaded(Config { precision: narrow, ..base }, 1)];
    let sums = offloaded_sums(base, 1, TierKind::Disk);
    let shards = [[TierKind::Device; 2], [TierKind::Disk; 2]].map(|kept| offloaded_shards(base, 1, kept));
    let all = optimizer.into_iter().chain([sums]).chain(shards);
    for config in all.flat_map(now_and_later) {
        check::<Untied>(config);
    }
}
