//! The parts of a peak.

use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, Often, OptimizerKind, Precision, TransportKind, Width};
use crate::mesh::Mesh;
use crate::plan::PipelineStage;
use crate::unit::{OrthogonalCost, Unit};

const UNIT: Unit = Unit {
    params: 100,
    takes: 100,
    saved_bytes: 128,
    input_bytes: 128,
    output_bytes: 128,
    operations: 10,
    ..Unit::NONE
};

/// Stage 3 with gathered parameters and local gradients held for the whole step.
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

/// An update uses the room for a matrix and, where buckets share staging, at most two buckets of directions.
#[test]
fn updates_have_directions_and_a_matrix_in_use() {
    let matrices = OrthogonalCost { room_bytes: 5000, operations: 1, operations_max: 1 };
    let units = [0, 1, 2, 3].map(|source| Unit { source, position: source, matrices, ..UNIT });
    for stage in 0..=3 {
        let config =
            Config { optimizer: OptimizerKind::Muon, bucket_bytes: 1, reduce: Often::PerMicroBatch, ..AT_STAGE_3 };
        PlanBuf::new("Four", Config { stage, ..config }, &units).with(|plan| {
            let PipelineStage { step, memory, .. } = &plan.pipeline_stages[0];
            let in_use = plan.in_use(0);
            let of = |at: usize, kind: Kind| in_use[at][kind as usize];
            for (at, op) in step.iter().enumerate() {
                Kind::ALL
                    .iter()
                    .for_each(|&kind| assert!(of(at, kind) <= memory.region(kind).bytes, "{op:?}: {kind:?}"));
                if let Op::Update { unit, .. } = op {
                    assert_eq!(of(at, Kind::Workspace), 5000);
                    // The next bucket is on its way, unless this is the last.
                    let staged = if *unit < 3 { 2 } else { 1 };
                    let expected = if stage < 2 { 4 } else { staged } * 128 * 4;
                    assert_eq!(of(at, Kind::Gradients), expected, "stage {stage}, unit {unit}");
                }
            }
            let peak = Peak { op: Op::Update { unit: 2, piece: None }, bytes: [0; Kind::ALL.len()] };
            assert_eq!(peak.name(Message::new(), &plan.tables(), "`").as_str(), "the update of ``");
        });
    }
}

/// Gathers of updated replicas take no slot, because below stage 3 slots are for converted parameters.
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
