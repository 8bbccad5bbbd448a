//! Misfits: an id outside of the vocabulary is one error with its place, the same on all ranks, and no rank learns from it.

use zero_core::model::Model;
use zero_cpu::Cpu;
use zero_engine::{BatchPlace, Engine, Ids, OutOfRange, RunError};
use zero_plan::{Config, PlanBuf};
use zero_ranks::transport::{Shared, local};
use zero_tests::tiny::{Untied, VOCAB};
use zero_tests::training::{CONFIG, HYPER, noise};

use super::meshes::pipelines;
use super::run;

const LENGTH: usize = CONFIG.length;

/// The error of a rank in a step, or else in an evaluation, whose data have misfits; and the loss of a step after it.
fn rank_main(
    transport: Shared<Cpu>,
    config: &Config,
    misfits: &[(usize, BatchPlace, u32)],
    trains: bool,
) -> (OutOfRange, f64) {
    let mut engine = Engine::new(Untied::PROGRAM, transport);
    let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
    engine.initialize(7);
    let noise = noise(*config);
    let batch = |micro_batch: usize, ids: &mut [u32], targets: &mut [u32]| {
        noise(0, data_rank, micro_batch, ids, targets);
        for (rank, place, id) in misfits {
            if (*rank, place.micro_batch) == (data_rank, micro_batch) {
                let cells = if place.ids == Ids::Input { &mut *ids } else { &mut *targets };
                cells[place.sequence * LENGTH + place.token] = *id;
            }
        }
    };
    let result = if trains { engine.step(&HYPER, batch).map(|report| report.loss) } else { engine.evaluate(batch) };
    let found = match result {
        Err(RunError::OutOfRange(found)) => found,
        other => panic!("{other:?}"),
    };
    let batch =
        |micro_batch: usize, ids: &mut [u32], targets: &mut [u32]| noise(0, data_rank, micro_batch, ids, targets);
    (found, engine.step(&HYPER, batch).expect("a step with sound data").loss)
}

fn place(ids: Ids, micro_batch: usize, sequence: usize, token: usize) -> BatchPlace {
    BatchPlace { ids, micro_batch, sequence, token }
}

/// All ranks get the first of `misfits` as an error, and continue as if nothing had happened.
fn assert_told(config: Config, misfits: &[(usize, BatchPlace, u32)], trained: bool) {
    let (data_rank, place, id) = misfits[0];
    let mesh = config.mesh;
    let is_given = |rank: &usize| {
        let at = mesh.coordinates(*rank);
        at.data_rank(&mesh) == data_rank && (at.pipeline == 0 || at.pipeline + 1 == mesh.pipeline)
    };
    let rank = (0..mesh.ranks()).find(is_given).expect("a rank");
    let expected = OutOfRange { step: u64::from(trained), trained, rank, place, id, bound: VOCAB };
    let loss = run::<Untied>(config, 1).losses[0];
    let told = PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
        local::run(plan, |_| false, |transport: Shared<'_, Cpu>| rank_main(transport, &config, misfits, trained))
    });
    for told in told.expect("the memory of a tiny model") {
        assert!(told == (expected.clone(), loss), "{config:?}: {told:?}, not {expected:?}");
    }
}

#[test]
fn an_id_out_of_range_is_told_with_its_place_on_all_ranks() {
    for config in pipelines() {
        let last = config.mesh.data_ranks() - 1;
        for ids in [Ids::Input, Ids::Target] {
            assert_told(config, &[(last, place(ids, 1, 1, 4), VOCAB as u32)], true);
        }
        assert_told(config, &[(0, place(Ids::Target, 0, 0, LENGTH - 1), u32::MAX)], false);
    }
}

#[test]
fn the_first_of_many_is_told() {
    let config = Config { mesh: zero_tests::training::mesh(1, 1, 3), micro_batches: 2, ..CONFIG.at_stage(3) };
    let first = (1, place(Ids::Input, 0, 1, 2), 300);
    let others = [
        (1, place(Ids::Target, 0, 0, 0), 301),
        (0, place(Ids::Input, 1, 0, 0), 302),
        (2, place(Ids::Input, 0, 1, 3), 303),
        (1, place(Ids::Input, 0, 1, 5), 304),
    ];
    assert_told(config, &[&[first][..], &others].concat(), true);
}

#[test]
fn a_prompt_beyond_the_vocabulary_is_refused() {
    let plan = PlanBuf::new("", CONFIG.at_stage(0), Untied::PLAN.units);
    let said = plan.with(|plan| {
        local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(Untied::PROGRAM, transport);
                engine.initialize(7);
                let predict = || engine.predict(&[VOCAB as u32], &mut [0.0; VOCAB]);
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(predict)).expect_err("a panic");
                panic.downcast_ref::<String>().cloned()
            },
        )
    });
    let said = said.expect("the memory of a tiny model").remove(0).expect("a message");
    assert_eq!(said, "input id Some(29), expected less than 29, the vocabulary");
}
