//! Orders: small schedules written out by hand, and the published costs of pipelines: the activations that a pipeline
//! stage keeps, counted from its ops, and its bubble, from a simulation in which only computation takes time.

use zero_plan::{Config, Kind, Op, Order, Parcel, Pass, Plan, makespan};

use crate::model::{Model, config, mesh};

/// A model with one unit for each chunk.
fn model(order: Order, pipeline_stages: usize, micro_batches: usize) -> Model {
    let config = Config { mesh: mesh(pipeline_stages, 1, 1), order, micro_batches, ..config(0) };
    Model::new(config, &vec![32; config.chunks()], None)
}

/// The computations of a pipeline stage: `F2.1` is the forward of chunk 2 on micro-batch 1.
fn turns(plan: &Plan, pipeline: usize) -> String {
    let turn = |op: &Op| match op {
        Op::Forward { unit, micro_batch, .. } => Some(format!("F{unit}.{micro_batch}")),
        Op::Backward { unit, micro_batch, .. } => Some(format!("B{unit}.{micro_batch}")),
        _ => None,
    };
    plan.pipeline_stages[pipeline].step.iter().filter_map(turn).collect::<Vec<_>>().join(" ")
}

fn assert_turns(order: Order, pipeline_stages: usize, micro_batches: usize, expected: &[&str]) {
    model(order, pipeline_stages, micro_batches).plan().with(|plan| {
        for (pipeline, expected) in expected.iter().enumerate() {
            assert_eq!(turns(plan, pipeline), *expected, "pipeline stage {pipeline}");
        }
    });
}

#[test]
fn one_forward_one_backward_as_soon_as_the_pipeline_is_full() {
    assert_turns(
        Order::OneFOneB,
        2,
        4,
        &["F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3", "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3"],
    );
}

#[test]
fn gpipe_goes_back_when_all_have_gone_forward() {
    assert_turns(
        Order::GPipe,
        2,
        4,
        &["F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3", "F1.0 F1.1 F1.2 F1.3 B1.0 B1.1 B1.2 B1.3"],
    );
}

#[test]
fn interleaved_chunks_take_turns_by_as_many_micro_batches_as_there_are_pipeline_stages() {
    assert_turns(
        Order::Interleaved { chunks: 2 },
        2,
        4,
        &[
            "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3",
            "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3",
        ],
    );
}

/// The whole schedule of two pipeline stages with one unit each, at stage 0 on one data rank.
#[test]
fn what_crosses_leaves_as_soon_as_it_is_there() {
    use Op::*;
    use Parcel::{Activations, Gradients};
    let spread = |bucket| Spread { bucket, axis: zero_plan::Axis::Zero };
    model(Order::OneFOneB, 2, 2).plan().with(|plan| {
        let first = [
            Clear { parcel: Activations },
            Forward { unit: 0, micro_batch: 0, slot: 0 },
            Send { parcel: Activations, unit: 0, micro_batch: 0 },
            Clear { parcel: Activations },
            Forward { unit: 0, micro_batch: 1, slot: 1 },
            Send { parcel: Activations, unit: 0, micro_batch: 1 },
            Receive { parcel: Gradients, unit: 0, micro_batch: 0, slot: 0 },
            Claim { bucket: 1 },
            Backward { unit: 0, micro_batch: 0, slot: 0 },
            Reduce { bucket: 1, round: 0 },
            Receive { parcel: Gradients, unit: 0, micro_batch: 1, slot: 1 },
            Settle { bucket: 1, round: 0 },
            Claim { bucket: 1 },
            Backward { unit: 0, micro_batch: 1, slot: 1 },
            Reduce { bucket: 1, round: 1 },
            Settle { bucket: 1, round: 1 },
            spread(1),
            Agree,
            Update { unit: 0, piece: None },
        ];
        let last = [
            Receive { parcel: Activations, unit: 1, micro_batch: 0, slot: 0 },
            Forward { unit: 1, micro_batch: 0, slot: 0 },
            Claim { bucket: 0 },
            Clear { parcel: Gradients },
            Backward { unit: 1, micro_batch: 0, slot: 0 },
            Send { parcel: Gradients, unit: 1, micro_batch: 0 },
            Reduce { bucket: 0, round: 0 },
            Receive { parcel: Activations, unit: 1, micro_batch: 1, slot: 0 },
            Forward { unit: 1, micro_batch: 1, slot: 0 },
            Settle { bucket: 0, round: 0 },
            Claim { bucket: 0 },
            Clear { parcel: Gradients },
            Backward { unit: 1, micro_batch: 1, slot: 0 },
            Send { parcel: Gradients, unit: 1, micro_batch: 1 },
            Reduce { bucket: 0, round: 1 },
            Settle { bucket: 0, round: 1 },
            spread(0),
            Agree,
            Update { unit: 1, piece: None },
        ];
        assert_eq!(plan.pipeline_stages[0].step, first);
        assert_eq!(plan.pipeline_stages[1].step, last);
    });
}

/// The most chunks of micro-batches whose activations a pipeline stage keeps at one time.
fn live_max(plan: &Plan, pipeline: usize) -> usize {
    let (mut live, mut most) = (0, 0);
    for op in plan.pipeline_stages[pipeline].step {
        match op {
            Op::Receive { parcel: Parcel::Activations, .. } | Op::Forward { unit: 0, .. } => live += 1,
            // Each unit is a chunk.
            Op::Backward { .. } => live -= 1,
            _ => {}
        }
        most = most.max(live);
    }
    most
}

/// The pipelines that are compared with publications: numbers of pipeline stages and of micro-batches.
fn pipelines() -> impl Iterator<Item = (usize, usize)> {
    (1..=6).flat_map(|pipeline_stages| (1..=10).map(move |micro_batches| (pipeline_stages, micro_batches)))
}

/// Narayanan et al., 2021, section 2.2: m micro-batches for GPipe; p for 1F1B at the first pipeline stage and one less
/// at each further one; p (1 + (p - 1) / (p v)) with v chunks, where each of the p v + p - 1 chunks is a v-th of a
/// micro-batch.
#[test]
fn as_many_activations_are_kept_as_published() {
    let assert_kept = |order, pipeline_stages, micro_batches, expected: &dyn Fn(usize) -> usize| {
        model(order, pipeline_stages, micro_batches).plan().with(|plan| {
            for pipeline in 0..pipeline_stages {
                let kept = live_max(plan, pipeline);
                assert_eq!(
                    kept,
                    expected(pipeline),
                    "{order:?}, {pipeline_stages} pipeline stages, {micro_batches} micro-batches, {pipeline}"
                );
                let memory = &plan.pipeline_stages[pipeline].memory;
                assert_eq!(memory.region(Kind::Activations).bytes, kept * memory.activation_slot_bytes);
            }
        });
    };
    for (pipeline_stages, micro_batches) in pipelines() {
        assert_kept(Order::GPipe, pipeline_stages, micro_batches, &|_| micro_batches);
        assert_kept(Order::OneFOneB, pipeline_stages, micro_batches, &|pipeline| {
            micro_batches.min(pipeline_stages - pipeline)
        });
        for chunks in 2..=4 {
            let micro_batches = micro_batches * pipeline_stages;
            let kept = |pipeline: usize| chunks * pipeline_stages + pipeline_stages - 1 - 2 * pipeline;
            assert_kept(Order::Interleaved { chunks }, pipeline_stages, micro_batches, &|pipeline| {
                kept(pipeline).min(micro_batches * chunks)
            });
        }
    }
}

/// How long each rank waits in a step, if a chunk takes 1 forward and 2 backward and nothing else takes time.
fn bubbles(order: Order, pipeline_stages: usize, micro_batches: usize) -> Vec<u64> {
    let cost = |op: &Op| match op {
        Op::Forward { .. } => 1,
        Op::Backward { .. } => 2,
        _ => 0,
    };
    model(order, pipeline_stages, micro_batches).plan().with(|plan| {
        let timing = makespan(plan, Pass::Train, &cost).expect("a plan without a cycle");
        (0..pipeline_stages).map(|rank| timing.bubble(rank)).collect()
    })
}

/// The same source: (p - 1) (TF + TB + TW), and a v-th of it with v chunks. That is the same number here, where times
/// are those of one chunk.
#[test]
fn bubbles_are_as_long_as_published() {
    for (pipeline_stages, micro_batches) in pipelines() {
        let published = vec![3 * (pipeline_stages as u64 - 1); pipeline_stages];
        for order in [Order::GPipe, Order::OneFOneB] {
            assert_eq!(
                bubbles(order, pipeline_stages, micro_batches),
                published,
                "{order:?}, {micro_batches} micro-batches"
            );
        }
        for chunks in 2..=4 {
            let order = Order::Interleaved { chunks };
            assert_eq!(bubbles(order, pipeline_stages, micro_batches * pipeline_stages), published, "{order:?}");
        }
    }
}

/// Otherwise a late rank would delay its peers immediately.
#[test]
fn each_phase_of_a_sum_comes_one_bucket_after_the_phase_before() {
    let config = Config { mesh: mesh(1, 2, 2), ..config(2) };
    Model::new(config, &[32; 4], None).plan().with(|plan| {
        let ops = plan.pipeline_stages[0].step;
        let at = |wanted: Op| ops.iter().position(|&op| op == wanted).expect("a phase of each bucket");
        for bucket in 0..3 {
            let (next, round) = (bucket + 1, 0);
            assert!(at(Op::Reduce { bucket: next, round }) < at(Op::Settle { bucket, round }), "{ops:?}");
            assert!(at(Op::Settle { bucket: next, round }) < at(Op::Combine { bucket, round }), "{ops:?}");
        }
    });
}
