//! Tests of the queues of small plans, worked out by hand.

use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, DeviceKind, Offload, TierKind, TransportKind};
use crate::mesh::Mesh;
use crate::pipeline::Pass;
use crate::plan::Plan;
use crate::static_plan;
use crate::unit::{Field, Unit};

const CUDA: Config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN };
const UNIT: Unit = Unit { params: 100, takes: 100, input_bytes: 64, output_bytes: 64, operations: 1, ..Unit::NONE };

/// Each op of a step by its name, with its stream if that is not `Compute`, and the op that it waits for.
fn told(config: Config, units: usize, pipeline: usize) -> String {
    let units: Vec<Unit> = (0..units).map(|source| Unit { source, position: source, ..UNIT }).collect();
    PlanBuf::new("Small", config, &units).with(|plan| {
        let pipeline_stage = &plan.pipeline_stages[pipeline];
        let told = pipeline_stage.step.iter().zip(pipeline_stage.step_queue).enumerate().map(|(at, (op, queued))| {
            let stream = if queued.stream == Stream::Compute { "" } else { queued.stream.name() };
            let after = queued.waits_for().map(|before| format!(" after {before}")).unwrap_or_default();
            format!("{at} {} {stream}{after}", op.name()).replace("  ", " ").trim_end().to_owned()
        });
        told.collect::<Vec<_>>().join(", ")
    })
}

/// A gather waits for the release of its slot, a layer for its gather, a sum for the last backward of its bucket, a
/// claim for the sum that read its staging, and the agreement for all sums.
#[test]
fn ops_wait_for_what_they_need_of_other_streams() {
    let config = Config { mesh: Mesh::of_zero(2), stage: 3, prefetch: 1, bucket_bytes: 1, ..CUDA };
    let expected = "0 gather gather, 1 gather gather, 2 wait after 0, 3 forward, 4 release, 5 gather gather after 4, \
        6 wait after 1, 7 forward, 8 release, 9 gather gather after 8, 10 wait after 5, 11 forward, 12 claim, 13 backward, \
        14 release, 15 reduce, 16 gather gather after 14, 17 wait after 9, 18 claim, 19 backward, 20 release, \
        21 reduce, 22 settle reduce after 13, 23 wait after 16, 24 claim after 22, 25 backward, 26 release, \
        27 reduce, 28 settle reduce after 19, 29 settle reduce after 25, 30 agree after 29, 31 update, 32 update, 33 update";
    assert_eq!(told(config, 3, 0), expected);
}

#[test]
fn replicas_are_gathered_after_their_update() {
    let config = Config { mesh: Mesh::of_zero(2), stage: 1, ..CUDA };
    let expected = "0 forward, 1 forward, 2 claim, 3 backward, 4 backward, 5 reduce, 6 settle reduce after 4, \
        7 agree after 6, 8 update, 9 gather gather after 8, 10 update, 11 gather gather after 10, 12 wait, 13 wait";
    assert_eq!(told(config, 2, 0), expected);
}

/// A parcel from another pipeline stage may arrive as soon as its place is free.
#[test]
fn parcels_come_in_a_stream_of_their_own() {
    let config = Config { mesh: Mesh { pipeline: 2, ..Mesh::of_zero(1) }, micro_batches: 2, ..CUDA };
    let expected = "0 receive copy, 1 forward after 0, 2 claim, 3 clear, 4 backward, 5 send, 6 reduce, \
        7 receive copy after 4, 8 forward after 7, 9 settle reduce after 4, 10 claim after 9, 11 clear, 12 backward, 13 send, \
        14 reduce, 15 settle reduce after 12, 16 spread reduce, 17 agree after 16, 18 update";
    assert_eq!(told(config, 2, 1), expected);
}

/// With one piece fetched ahead there are three slots. Units of 5000 and 100 elements have three pieces and one: the
/// last fetch waits for the store that makes its slot free. All else runs on the rank's own thread.
#[test]
fn pieces_of_states_are_fetched_updated_and_stored_in_turn() {
    let offload = Offload { optimizer: TierKind::Disk, prefetch: 1, piece_bytes: 8192, ..Offload::NONE };
    let config = Config { offload, ..Config::PLAIN };
    let long = Unit { params: 5000, takes: 5000, ..UNIT };
    PlanBuf::new("Small", config, &[long, Unit { source: 1, position: 1, ..UNIT }]).with(|plan| {
        let stage = &plan.pipeline_stages[0];
        let told = stage.step.iter().zip(stage.step_queue).enumerate().map(|(at, (&op, queued))| {
            let stream = if queued.stream == Stream::Compute { "" } else { queued.stream.name() };
            let after = queued.waits_for().map(|before| format!(" after {before}")).unwrap_or_default();
            let slot = op.traits().piece.map(|piece| format!(" {piece} in {}", op.slot().expect("a slot")));
            format!("{at} {}{} {stream}{after}", op.name(), slot.unwrap_or_default())
                .replace("  ", " ")
                .trim_end()
                .to_owned()
        });
        let expected = "0 fetch 0 in 0 fetch, 1 fetch 1 in 1 fetch, 2 fetch 2 in 2 fetch, 3 forward, 4 forward, 5 claim, \
            6 backward, 7 backward, 8 reduce, 9 settle, 10 spread, 11 agree, \
            12 update 0 in 0 after 0, 13 store 0 in 0 store after 12, 14 fetch 0 in 0 fetch after 13, \
            15 update 1 in 1 after 1, 16 store 1 in 1 store after 15, \
            17 update 2 in 2 after 2, 18 store 2 in 2 store after 17, 19 update 0 in 0 after 14, 20 store 0 in 0 store after 19";
        assert_eq!(told.collect::<Vec<_>>().join(", "), expected);
    });
}

#[test]
fn the_compiler_computes_the_queues_of_run_time() {
    const MESH: Mesh = Mesh { pipeline: 2, replica: 2, ..Mesh::of_zero(2) };
    const PIPED: Config = Config { mesh: MESH, stage: 3, prefetch: 2, micro_batches: 3, bucket_bytes: 1, ..CUDA };
    const FIELDS: &[Field] = &[Field { name: "layers", count: Some(6), tied: None, period: 1, sizes: UNIT }];
    static PLAN: Plan<'static> = static_plan!("Piped", PIPED, FIELDS);
    static PLAIN: Plan<'static> =
        static_plan!("Piped", Config { device: DeviceKind::Cpu, transport: TransportKind::Local, ..PIPED }, FIELDS);
    PlanBuf::new("Piped", PIPED, PLAN.units).with(|plan| {
        assert_eq!(&PLAN, plan);
        assert_eq!(PLAN.fingerprint(), plan.fingerprint());
    });
    for (pipeline_stage, plain) in PLAN.pipeline_stages.iter().zip(PLAIN.pipeline_stages) {
        for pass in [Pass::Train, Pass::Evaluate] {
            assert_eq!(pipeline_stage.queue(pass).len(), pipeline_stage.ops(pass).len());
            // A schedule does not depend on the device, and without streams there is no queue.
            assert_eq!(pipeline_stage.ops(pass), plain.ops(pass));
            assert!(plain.queue(pass).is_empty());
        }
    }
}
