//! Constants: the tables that the compiler computes are equal to those that are computed at run time.

use zero_plan::{
    Config, Field, Mesh, Order, Plan, PlanBuf, Precision, Recompute, TransportKind, Unit, Width, prove, static_plan,
    unit_count, units,
};

/// A model as deep as they get, with the longest prefetch that a spec would ask for, as a load for the compiler.
const DEEP: Config = Config {
    mesh: Mesh::of_zero(8),
    stage: 3,
    prefetch: 8,
    bucket_bytes: 1 << 20,
    sequences: 4,
    length: 128,
    micro_batches: 4,
    transport: TransportKind::Local,
    ..Config::PLAIN
};

/// The same with everything else that a spec can ask for.
const PIPED: Config = Config {
    mesh: Mesh { nodes: 1, zero: 2, replica: 2, pipeline: 4, order: DEEP.mesh.order },
    order: Order::Interleaved { chunks: 2 },
    recompute: Recompute::Every(2),
    precision: Precision { params: Width::BF16, reduce: Width::BF16, ..DEEP.precision },
    micro_batches: 8,
    ..DEEP
};

const EMBED: Unit = Unit {
    params: 50_257 * 384,
    takes: 50_257 * 384,
    input_bytes: 4 * 512,
    output_bytes: 4 * 512 * 384,
    operations: 512 * 384,
    ..Unit::NONE
};
const BLOCK: Unit = Unit {
    params: 1_774_464,
    takes: 1_774_464,
    saved_bytes: 4 * 4_096_001,
    workspace_bytes: 4 * 99,
    input_bytes: 4 * 512 * 384,
    operations: 2 * 512 * 1_774_464,
    ..EMBED
};
const NORM: Unit = Unit { params: 768, takes: 768, saved_bytes: 4 * 1024, operations: 512 * 384 * 8, ..BLOCK };
const HEAD: Unit = Unit {
    saved_bytes: 4 * 512 * 50_257,
    input_bytes: 4 * 512 * 384,
    output_bytes: 4 * 512,
    targets_bytes: 4 * 512,
    operations: 2 * 512 * 384 * 50_257,
    ..EMBED
};

const FIELDS: &[Field] = &[
    Field { name: "embed", count: None, tied: None, period: 1, sizes: EMBED },
    Field { name: "blocks", count: Some(60), tied: None, period: 1, sizes: BLOCK },
    Field { name: "norm", count: None, tied: None, period: 1, sizes: NORM },
    Field { name: "head", count: None, tied: Some(0), period: 1, sizes: HEAD },
];

static STAGE_0: Plan<'static> = static_plan!("Deep", DEEP.at_stage(0), FIELDS);
static STAGE_1: Plan<'static> = static_plan!("Deep", DEEP.at_stage(1), FIELDS);
static STAGE_2: Plan<'static> = static_plan!("Deep", DEEP.at_stage(2), FIELDS);
static STAGE_3: Plan<'static> = static_plan!("Deep", DEEP, FIELDS);
static PIPELINE: Plan<'static> = static_plan!("Deep", PIPED, FIELDS);

#[test]
fn the_compiler_computes_the_tables_of_run_time() {
    let units: [Unit; unit_count(FIELDS)] = units(FIELDS);
    assert_eq!(units.len(), 63);
    let plans = [&STAGE_0, &STAGE_1, &STAGE_2, &STAGE_3].into_iter().zip((0..).map(|stage| DEEP.at_stage(stage)));
    for (plan, config) in plans.chain([(&PIPELINE, PIPED)]) {
        PlanBuf::new("Deep", config, &units).with(|at_run_time| {
            assert_eq!(plan, at_run_time);
            assert_eq!(plan.fingerprint(), at_run_time.fingerprint());
        });
        assert_eq!(plan.check(), Ok(()));
        prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
    }
}
