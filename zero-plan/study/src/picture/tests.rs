//! Tests that a picture agrees with its plan.

use zero_plan::budget::Peak;
use zero_plan::{
    Config, Kind, Mesh, Op, Order, Pass, PlanBuf, Recompute, Timing, Traffic, TransportKind, Unit, makespan,
};

use super::*;

const TEXT: &str = "// a spec\n(\n    zero: (stage: 3, prefetch: 1),\n    mesh: (zero: 2, pipeline: 2),\n)\n";

/// Eight units, the last of which is tied to the first.
fn units() -> Vec<Unit> {
    let sizes = Unit { field: "unit", params: 100, takes: 100, operations: 10, ..Unit::NONE };
    let sizes = Unit { saved_bytes: 128, input_bytes: 64, output_bytes: 64, workspace_bytes: 32, ..sizes };
    let unit = |source: usize| Unit { source, position: source, operations: 10 + source, ..sizes };
    (0..7).map(unit).chain([Unit { params: 0, ..unit(0) }]).collect()
}

/// Layouts and orders of all kinds.
fn configs() -> Vec<Config> {
    let mesh = Mesh { pipeline: 2, ..Mesh::of_zero(2) };
    let base = Config { mesh, micro_batches: 4, prefetch: 1, bucket_bytes: 1000, ..Config::PLAIN };
    vec![
        Config { mesh: Mesh::of_zero(1), ..base },
        base.at_stage(1),
        Config { order: Order::GPipe, recompute: Recompute::Every(2), ..base.at_stage(2) },
        Config { mesh: Mesh { replica: 2, ..mesh }, transport: TransportKind::Local, ..base.at_stage(3) },
        Config { order: Order::Interleaved { chunks: 2 }, ..base.at_stage(3) },
        // Two hosts that sum along `zero` or over replicas.
        Config { mesh: Mesh { nodes: 2, ..Mesh::of_zero(4) }, transport: TransportKind::Cluster, ..base.at_stage(2) },
        Config {
            mesh: Mesh { nodes: 2, replica: 4, ..Mesh::of_zero(2) },
            transport: TransportKind::Cluster,
            ..base.at_stage(3)
        },
    ]
}

/// Calls `check` with each plan and its picture in operations.
fn each(check: impl Fn(&Plan, &Picture)) {
    for config in configs() {
        PlanBuf::new("Eight", config, &units()).with(|plan| check(plan, &pictured(plan)));
    }
}

fn pictured(plan: &Plan) -> Picture {
    let timeline = operations(plan).expect("this hardware has everything that a mesh needs");
    let timed = Timed { timeline: &timeline, clock: TimeAxis::Operations, hardware: None, memory_bytes: None };
    Picture::of(plan, timed, "specs/a.ron", TEXT)
}

#[test]
fn the_timeline_in_operations_is_that_of_the_execution_of_all_ranks() {
    each(|plan, picture| {
        let cost = |op: &Op| match *op {
            Op::Forward { unit, .. } | Op::Recompute { unit, .. } => plan.units[unit].forward_operations() as u64,
            Op::Backward { unit, .. } => plan.units[unit].backward_operations() as u64,
            _ => 0,
        };
        let Timing { makespan, busy, .. } = makespan(plan, Pass::Train, &cost).expect("no deadlock");
        assert_eq!(picture.end, makespan);
        for (rank, busy) in busy.into_iter().enumerate() {
            let pipeline_stage = &picture.pipeline_stages[plan.config.mesh.coordinates(rank).pipeline];
            let computes =
                pipeline_stage.time.iter().filter(|part| part.class.is_some()).map(|part| part.time).sum::<u64>();
            assert_eq!(computes, busy);
            assert_eq!(pipeline_stage.time.iter().map(|part| part.time).sum::<u64>(), makespan);
            assert_eq!(pipeline_stage.ops.start.len(), plan.of_rank(rank).step.len());
        }
    });
}

#[test]
fn ops_are_the_plans_ops_in_words() {
    each(|plan, picture| {
        for (at, (pipeline_stage, drawn)) in plan.pipeline_stages.iter().zip(&picture.pipeline_stages).enumerate() {
            for (number, &op) in pipeline_stage.step.iter().enumerate() {
                let verb = &picture.verbs[drawn.ops.verb[number]];
                let subject = match (verb.about, usize::try_from(drawn.ops.about[number])) {
                    (About::Unit, Ok(unit)) => picture.units[unit].name.clone(),
                    (About::Bucket, Ok(bucket)) => bucket.to_string(),
                    _ => String::new(),
                };
                let title = if verb.alone { verb.name.clone() } else { format!("{} {subject}", verb.name) };
                assert_eq!(title, plan.title(op));
                assert_eq!(drawn.ops.sent[number], Traffic::of(plan, plan.first_rank(at), &[op]).total_bytes());
            }
            let sent: usize = drawn.traffic.iter().map(|part| part.bytes).sum();
            assert_eq!(sent, Traffic::of(plan, plan.first_rank(at), pipeline_stage.step).total_bytes());
            assert_eq!(sent, drawn.ops.sent.iter().sum::<usize>());
        }
    });
}

#[test]
fn memory_in_use_has_the_plans_peak() {
    each(|plan, picture| {
        for (number, (pipeline_stage, drawn)) in plan.pipeline_stages.iter().zip(&picture.pipeline_stages).enumerate() {
            let Peak { op, bytes } = plan.peak(number);
            assert_eq!((pipeline_stage.step[drawn.memory.peak.op], drawn.memory.peak.bytes), (op, bytes));
            // The whole curve follows from the changes, and no op uses more than the region has.
            for (kind, changes) in Kind::ALL.into_iter().zip(&drawn.memory.in_use) {
                let curve = plan.in_use(number);
                for (op, in_use) in curve.iter().enumerate() {
                    let (_, bytes) = changes.iter().rev().find(|(from, _)| *from <= op).expect("a first change");
                    assert_eq!(in_use[kind as usize], *bytes);
                    assert!(*bytes <= pipeline_stage.memory.region(kind).bytes, "{kind:?} at {op}");
                }
            }
            assert_eq!(drawn.memory.arena_bytes, pipeline_stage.memory.bytes_per_rank());
        }
    });
}

#[test]
fn flights_end_after_they_start_and_tracks_do_not_overlap() {
    each(|plan, picture| {
        for (pipeline_stage, drawn) in plan.pipeline_stages.iter().zip(&picture.pipeline_stages) {
            let flights = &drawn.flights;
            let starts = |op: &&Op| match op {
                Op::Gather { .. } | Op::Reduce { .. } | Op::Subtotal { .. } | Op::Send { .. } => true,
                Op::Settle { .. } => plan.config.mesh.replica > 1,
                _ => false,
            };
            let started = flights.op.iter().filter(|&&op| starts(&&pipeline_stage.step[op])).count();
            assert_eq!(started, pipeline_stage.step.iter().filter(starts).count(), "each transfer has an end");
            for i in 0..flights.op.len() {
                assert!(flights.start[i] <= flights.end[i]);
                let before = (0..i)
                    .rev()
                    .find(|&j| (flights.class[j], flights.track[j]) == (flights.class[i], flights.track[i]));
                assert!(before.is_none_or(|j| flights.end[j] <= flights.start[i]), "{i} of {:?}", plan.config);
            }
        }
    });
}

#[test]
fn every_verb_is_decided_by_a_key_with_its_line_or_default() {
    each(|_, picture| {
        for verb in &picture.verbs {
            let key = picture.source.keys.iter().find(|key| key.path == verb.key).expect("a key for each verb");
            assert!(!key.value.is_empty() || key.path == "mesh", "{key:?}");
        }
        let key =
            |path| picture.source.keys.iter().find(|key| key.path == path).map(|key| (key.line, key.value.clone()));
        assert_eq!(key("memory"), Some((None, "no budget".to_owned())));
        if picture.prefetch.is_some() {
            assert_eq!(key("zero.prefetch"), Some((Some(3), "1".to_owned())));
        }
    });
}

#[test]
fn an_op_that_waited_says_for_what() {
    let waits = std::cell::Cell::new(0);
    each(|plan, picture| {
        for (number, (pipeline_stage, drawn)) in plan.pipeline_stages.iter().zip(&picture.pipeline_stages).enumerate() {
            let waited: Vec<usize> = (0..pipeline_stage.step.len()).filter(|&op| drawn.ops.waited[op] > 0).collect();
            assert_eq!(drawn.ops.waits.iter().map(|wait| wait.op).collect::<Vec<_>>(), waited);
            for wait in &drawn.ops.waits {
                let cause = plan.pipeline_stages[wait.pipeline].step[wait.of];
                match pipeline_stage.step[wait.op] {
                    Op::Receive { parcel, .. } => {
                        assert!(matches!(cause, Op::Send { parcel: sent, .. } if sent == parcel), "{cause:?}");
                        assert_eq!((wait.pipeline, wait.flow), (plan.parcel_sender(parcel, number), Some("parcels")));
                    }
                    Op::Clear { parcel } => assert_eq!(wait.pipeline, plan.parcel_receiver(parcel, number)),
                    op => assert!(plan.config.mesh.pipeline > 1 && op == Op::Agree, "{op:?}"),
                }
                waits.set(waits.get() + 1);
            }
        }
    });
    assert!(waits.get() > 20, "{}", waits.get());
}

#[test]
fn what_a_rank_holds_is_as_the_stage_says() {
    use Holding::{Alone, Gathered, Own, Passing, Replicated, Sharded};
    let held = |config: &Config| {
        let kinds = [Kind::Parameters, Kind::Gradients, Kind::Optimizer, Kind::Gathered, Kind::Activations];
        (kinds.map(|kind| Holding::of(config, kind)), MeshPicture::of(config).states.map(|state| state.shards))
    };
    let four = Config { mesh: Mesh::of_zero(4), ..Config::PLAIN };
    assert_eq!(held(&four), ([Replicated, Own, Replicated, Gathered, Own], [1, 1, 1]));
    assert_eq!(held(&four.at_stage(1)), ([Replicated, Own, Sharded, Gathered, Own], [1, 1, 4]));
    assert_eq!(held(&four.at_stage(2)), ([Replicated, Passing, Sharded, Gathered, Own], [1, 4, 4]));
    assert_eq!(held(&four.at_stage(3)), ([Sharded, Passing, Sharded, Gathered, Own], [4, 4, 4]));
    let one = Config { mesh: Mesh::of_zero(1), ..Config::PLAIN };
    assert_eq!(held(&one).0, [Alone, Own, Alone, Gathered, Own]);
}

#[test]
fn the_summary_has_no_broken_lines() {
    let mut config = Config { recompute: Recompute::Every(1), ..configs()[1] };
    config.precision.compute = zero_plan::Width::BF16;
    let picture = PlanBuf::new("Eight", config, &units()).with(pictured);
    assert!(picture.summary.iter().all(|line| !line.contains('\n') && !line.contains("  ")), "{:?}", picture.summary);
    assert!(picture.summary[2].ends_with("moments F32; 4 + 4 + 8 bytes a parameter"), "{:?}", picture.summary);
}

/// Its copies are in the memory of a rank, its bytes in the summary, and its keys beside the spec.
#[test]
fn a_publication_is_drawn() {
    let publish = zero_plan::Publish { dtype: zero_plan::Width::BF16, copies: 2 };
    let config = Config { publish, ..configs()[1] };
    PlanBuf::new("Eight", config, &units()).with(|plan| {
        let picture = pictured(plan);
        let line = picture.summary.iter().find(|line| line.starts_with("publication: a version has "));
        assert!(line.is_some(), "{:?}", picture.summary);
        assert!(picture.source.keys.iter().any(|key| key.path == "publish.dtype"));
        let region = plan.pipeline_stages[0].memory.region(Kind::Published);
        let drawn = serde_json::to_value(&picture.pipeline_stages[0].memory).expect("figures").to_string();
        assert!(drawn.contains(&region.bytes.to_string()), "{} in {drawn}", region.bytes);
    });
}
