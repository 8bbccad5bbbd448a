//! Which changes are looked at, what they cost, and how many of them are told.

use super::*;
use crate::config::{Config, Often, Precision, TransportKind, Width};
use crate::mesh::Mesh;
use crate::plan::PlanBuf;

const UNIT: Unit = Unit {
    params: 100,
    takes: 100,
    saved_bytes: 128,
    input_bytes: 128,
    output_bytes: 128,
    operations: 10,
    ..Unit::NONE
};

/// All that can be given up at stage 3 is in use.
const AT_STAGE_3: Config = Config {
    mesh: Mesh::of_zero(2),
    stage: 3,
    prefetch: 1,
    gather: Often::PerStep,
    reduce: Often::PerStep,
    sequences: 4,
    micro_batches: 2,
    transport: TransportKind::Local,
    ..Config::PLAIN
};

fn planned(config: Config) -> PlanBuf {
    PlanBuf::new("Four", config, &[0, 1, 2, 3].map(|source| Unit { source, position: source, ..UNIT }))
}

/// The changes that apply, by what they are told as.
fn applying(config: Config) -> Vec<(String, Change)> {
    planned(config).with(|plan| {
        let changes = change::all(&plan.tables(), &mut [Unit::NONE; 4]).into_iter();
        let name = |change: &Change| change.name(Message::new(), &plan.config, &Origin::UNKNOWN).as_str().to_owned();
        changes.filter(|change| change.applies).map(|change| (name(&change), change)).collect()
    })
}

#[test]
fn everything_that_may_be_given_up_is_looked_at() {
    let names = |config| applying(config).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let expected = [
        "`zero: (prefetch: 0)`: ",
        "`zero: (gather: PerMicroBatch)`: ",
        "`zero: (reduce: PerMicroBatch)`: ",
        "`recompute: Every(1)`: ",
        "`batch: (sequences: 2, micro_batches: 4)`: at most ",
        "`batch: (sequences: 1, micro_batches: 8)`: at most ",
    ];
    assert_eq!(names(AT_STAGE_3), expected);
    // Each micro-batch has 8 ops at least: with more of either, they would be too many to compile.
    assert_eq!(names(Config { micro_batches: 3000, ..AT_STAGE_3 }), expected[..1]);
    let at_stage_2 = names(Config { sequences: 1, ..AT_STAGE_3.at_stage(2) });
    assert_eq!(at_stage_2, ["`zero: (stage: 3)`: ", expected[2], expected[3]]);
}

/// At stage 3 each parameter is gathered once more, in its own width.
#[test]
fn only_what_goes_to_other_ranks_counts_as_sent() {
    let precision = Precision { params: Width::BF16, ..Precision::default() };
    let config = Config { gather: Often::PerMicroBatch, micro_batches: 1, precision, ..AT_STAGE_3.at_stage(2) };
    let padded_bytes = planned(config).with(|plan| 2 * plan.placements.iter().map(|at| at.padded).sum::<usize>());
    let (name, to_stage_3) = &applying(config)[0];
    assert_eq!((name.as_str(), to_stage_3.more_sent_bytes), ("`zero: (stage: 3)`: ", padded_bytes));
    let alone = applying(Config { mesh: Mesh::of_zero(1), ..AT_STAGE_3 });
    assert!(!alone.is_empty() && alone.iter().all(|(_, change)| change.more_sent_bytes == 0));
}

/// The first of two pipeline stages keeps more activations.
#[test]
fn a_change_needs_what_the_largest_pipeline_stage_then_needs() {
    let config = Config { mesh: Mesh { pipeline: 2, ..Mesh::of_zero(1) }, stage: 0, ..AT_STAGE_3 };
    let needed = planned(config.at_stage(1)).with(|plan| {
        let memories = plan.stages.iter().map(|stage| rank_bytes(&plan.tables(), &stage.memory));
        let [first, last] = *memories.collect::<Vec<_>>() else { panic!("two pipeline stages") };
        assert!(first > last, "{first} and {last}");
        first
    });
    let (name, change) = &applying(config)[0];
    assert_eq!((name.as_str(), change.bytes), ("`zero: (stage: 1)`: ", needed));
}

#[test]
fn no_more_than_four_changes_are_offered() {
    planned(AT_STAGE_3).with(|plan| {
        let mut scratch = [Unit::NONE; 4];
        let message = tell_changes(Message::new(), &plan.tables(), usize::MAX, &mut scratch, &Origin::UNKNOWN)
            .as_str()
            .to_owned();
        assert_eq!(message.matches("\n    `").count(), OFFERS, "{message}");
    });
}

#[test]
fn a_change_costs_what_it_computes_and_what_it_sends() {
    planned(AT_STAGE_3).with(|plan| {
        let change =
            Change { applies: true, config: plan.config, bytes: 1 << 20, more_sent_bytes: 3, more_operations: 7 };
        assert_eq!(change.cost(), 7 + 3 * 50);
        // 7 of 240 operations: a part of a percent is told as a whole one.
        let message = tell_change(Message::new(), &plan.tables(), &change, &Origin::UNKNOWN).as_str().to_owned();
        assert!(message.ends_with("1.0 MiB, about 3 B more sent a step, 3 % more operations"), "{message}");
    });
}

/// Gathers of updated replicas take no slot: those are for what is converted.
#[test]
fn nothing_peaks_beyond_its_region() {
    let precision = Precision { params: Width::BF16, ..Precision::default() };
    for stage in 0..=3 {
        planned(Config { stage, precision, gather: Often::PerMicroBatch, ..AT_STAGE_3 }).with(|plan| {
            let crate::plan::PipelineStage { step, memory, .. } = &plan.stages[0];
            let peak = peak(&plan.tables(), memory, step);
            for kind in Kind::ALL {
                assert!(peak.bytes[kind as usize] <= memory.region(kind).bytes, "{kind:?} at stage {stage}");
            }
        });
    }
}
