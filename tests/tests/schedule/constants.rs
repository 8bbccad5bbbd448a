//! Constants: the tables that the compiler computes are those that are computed at run time.

use zero_plan::{Config, Field, Plan, PlanBuf, Transport, Unit, static_plan, unit_count, units};

/// As deep as models get, with as much to look ahead for as a spec would ask: what the compiler has to cope with.
const DEEP: Config = Config {
    stage: 3,
    ranks: 8,
    prefetch: 8,
    bucket_bytes: 1 << 20,
    sequences: 4,
    length: 128,
    micro_batches: 4,
    transport: Transport::Local,
    memory_bytes: None,
};

const EMBED: Unit = Unit {
    field: "",
    position: 0,
    index: None,
    params: 50_257 * 384,
    takes: 50_257 * 384,
    source: 0,
    saved: 0,
    workspace: 0,
    input: 512,
    output: 512 * 384,
};
const BLOCK: Unit =
    Unit { params: 1_774_464, takes: 1_774_464, saved: 4_096_001, workspace: 99, input: 512 * 384, ..EMBED };
const NORM: Unit = Unit { params: 768, takes: 768, saved: 1024, ..BLOCK };
const HEAD: Unit = Unit { saved: 512 * 50_257, input: 512 * 384, output: 512, ..EMBED };

const FIELDS: &[Field] = &[
    Field { name: "embed", count: None, tied: None, sizes: EMBED },
    Field { name: "blocks", count: Some(60), tied: None, sizes: BLOCK },
    Field { name: "norm", count: None, tied: None, sizes: NORM },
    Field { name: "head", count: None, tied: Some(0), sizes: HEAD },
];

static STAGE_0: Plan<'static> = static_plan!("Deep", DEEP.at_stage(0), FIELDS);
static STAGE_1: Plan<'static> = static_plan!("Deep", DEEP.at_stage(1), FIELDS);
static STAGE_2: Plan<'static> = static_plan!("Deep", DEEP.at_stage(2), FIELDS);
static STAGE_3: Plan<'static> = static_plan!("Deep", DEEP, FIELDS);

#[test]
fn the_compiler_computes_the_tables_of_run_time() {
    let units: [Unit; unit_count(FIELDS)] = units(FIELDS);
    assert_eq!(units.len(), 63);
    for (stage, plan) in (0..).zip([&STAGE_0, &STAGE_1, &STAGE_2, &STAGE_3]) {
        let at_run_time = PlanBuf::new("Deep", DEEP.at_stage(stage), &units);
        assert_eq!(*plan, at_run_time.as_plan());
        assert_eq!(plan.fingerprint(), at_run_time.as_plan().fingerprint());
        assert_eq!(plan.check(), Ok(()));
    }
}
