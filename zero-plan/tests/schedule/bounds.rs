//! Bounds: the number of ops of a plan is known before it is made, so a plan that is too large to make or count is
//! refused in advance.

use proptest::prelude::*;
use zero_plan::bounds::{OPS_MAX, require_compilable, require_countable};
use zero_plan::{
    Config, Field, Mesh, Order, Origin, Pass, Plan, PlanBuf, TransportKind, Unit, ops_max, prove, static_plan,
};

use crate::model::{Model, config, mesh, models};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_has_more_ops_than_are_counted_for_it(model in models(48)) {
        model.plan().with(|plan| {
            for (pipeline, schedules) in plan.pipeline_stages.iter().enumerate() {
                for pass in [Pass::Train, Pass::Evaluate] {
                    let bound = ops_max(pass, &plan.tables(), pipeline);
                    assert!(schedules.ops(pass).len() <= bound, "{} > {bound}", schedules.ops(pass).len());
                }
            }
        });
    }
}

/// If there are several units to gather and to reduce, the bound is hardly larger than the number of ops.
#[test]
fn hardly_more_ops_are_counted_than_there_are() {
    for stage in 0..=3 {
        for order in [Order::OneFOneB, Order::GPipe, Order::Interleaved { chunks: 2 }] {
            for pipeline in [1, 2] {
                let config = Config { mesh: mesh(pipeline, 2, 1), order, micro_batches: 20, ..config(stage) };
                Model::new(config, &[40; 24], None).plan().with(|plan| {
                    for (at, schedules) in plan.pipeline_stages.iter().enumerate() {
                        let (bound, ops) = (ops_max(Pass::Train, &plan.tables(), at), schedules.step.len());
                        assert!(100 * bound <= 115 * ops, "stage {stage}, {order:?}: {bound} for {ops}");
                    }
                });
            }
        }
    }
}

/// A plan of the largest size. It is part of the test that this compiles, in seconds.
const AT_THE_BOUND: Config = Config {
    mesh: Mesh::of_zero(4),
    stage: 3,
    prefetch: 30,
    bucket_bytes: 1,
    micro_batches: 66,
    transport: TransportKind::Local,
    ..Config::PLAIN
};
const SIZES: Unit = Unit {
    params: 100,
    takes: 100,
    saved_bytes: 128,
    input_bytes: 128,
    output_bytes: 128,
    targets_bytes: 4,
    operations: 6400,
    ..Unit::NONE
};
const FIELDS: &[Field] = &[Field { name: "layers", count: Some(44), tied: None, period: 1, sizes: SIZES }];
static LARGE: Plan<'static> = static_plan!("Large", AT_THE_BOUND, FIELDS);

#[test]
fn a_plan_at_the_bound_compiles_and_is_proven() {
    let ops = LARGE.pipeline_stages[0].step.len();
    assert!(ops <= OPS_MAX && 100 * ops >= 90 * OPS_MAX, "{ops}");
    prove(&LARGE).unwrap_or_else(|flaw| panic!("{flaw}"));
}

fn message_of(refuse: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let refused = std::panic::catch_unwind(refuse).err()?;
    Some(refused.downcast_ref::<String>().expect("a panic with a message").clone())
}

/// The number of micro-batches that the message offers fits, and one more does not.
#[test]
fn z0212_what_is_offered_fits() {
    for (pipeline, order) in
        [(1, Order::OneFOneB), (2, Order::GPipe), (2, Order::Interleaved { chunks: 2 }), (1, Order::GPipe)]
    {
        let with = |micro_batches: usize| {
            let config = Config { mesh: mesh(pipeline, 2, 1), order, micro_batches, ..config(3) };
            Model::new(config, &[40; 24], None).plan()
        };
        let refusal = |plan: &PlanBuf| {
            plan.with(|plan| {
                let plan = *plan;
                message_of(move || require_compilable(&plan.tables(), &Origin::UNKNOWN))
            })
        };
        let message = refusal(&with(500)).expect("24 units in 500 micro-batches are too many ops");
        assert!(message.starts_with("[Z0212] ") && message.contains("24 units x 500 micro-batches"), "{message}");
        let offered = message.split("micro_batches: ").nth(1).unwrap().split(')').next().unwrap();
        let offered: usize = offered.parse().unwrap();
        let round = if matches!(order, Order::Interleaved { .. }) { pipeline } else { 1 };
        assert_eq!(refusal(&with(offered)), None, "{message}");
        assert!(refusal(&with(offered + round)).is_some(), "{message}");
    }
}

#[test]
fn z0210_sizes_that_cannot_be_counted_together() {
    let unit = |saved_bytes: usize, operations: usize| [Unit { saved_bytes, operations, ..SIZES }; 2];
    let refusal =
        |config: Config, units: [Unit; 2]| message_of(move || require_countable(&config, &units, &Origin::UNKNOWN));
    let large = Config { micro_batches: 8192, ..config(3) };
    assert_eq!(refusal(large, unit(1 << 42, 1 << 40)), None);
    for units in [unit(1 << 52, 1), unit(usize::MAX, 1), unit(1, 1 << 50), unit(1, usize::MAX)] {
        let message = refusal(large, units).expect("a sum beyond 64 bits");
        assert!(message.starts_with("[Z0210] ") && message.contains("8192 micro-batches"), "{message}");
    }
}
