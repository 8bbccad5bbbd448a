//! The parts of a peak.

use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, Often, Precision, TransportKind, Width};
use crate::mesh::Mesh;
use crate::unit::Unit;

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

/// Gathers of updated replicas take no slot: those are for what is converted.
#[test]
fn nothing_peaks_beyond_its_region() {
    let precision = Precision { params: Width::BF16, ..Precision::default() };
    for stage in 0..=3 {
        planned(Config { stage, precision, gather: Often::PerMicroBatch, ..AT_STAGE_3 }).with(|plan| {
            let crate::plan::PipelineStage { step, memory, .. } = &plan.pipeline_stages[0];
            let peak = peak(&plan.tables(), memory, step);
            for kind in Kind::ALL {
                assert!(peak.bytes[kind as usize] <= memory.region(kind).bytes, "{kind:?} at stage {stage}");
            }
        });
    }
}
