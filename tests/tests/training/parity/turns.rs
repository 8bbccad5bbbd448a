//! Turns: ranks that make different calls, or continue after a call that did not end, are stopped before one writes memory that
//! another reads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zero_core::model::Model;
use zero_engine::{Engine, Hyper, RunError};
use zero_plan::{Axis, Config, Coordinates, Mesh, PlanBuf};
use zero_ranks::transport::{Lost, Shared, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::Untied;
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

type Untold<'p> = Engine<'p, Cpu, Shared<'p, Cpu>>;

/// Runs ranks of a replicated model, with initial parameters on request.
fn run(ranks: usize, initialized: bool, body: impl Fn(usize, &mut Untold) + Sync) {
    let config = Config { mesh: mesh(1, 1, ranks), ..CONFIG.at_stage(0) };
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = Engine::new(Untied::PROGRAM, transport);
        if initialized {
            engine.initialize(7);
        }
        body(engine.arena().rank(), &mut engine);
    };
    PlanBuf::new("", config, Untied::PLAN.units).with(|plan| local::run(plan, |()| false, main).expect("memory"));
}

fn fill(micro_batch: usize, ids: &mut [u32], targets: &mut [u32]) {
    noise(CONFIG)(0, 0, micro_batch, ids, targets);
}

/// The message of a panic of `call`.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
}

#[test]
fn ranks_that_make_different_calls_are_all_stopped() {
    run(2, true, |rank, engine| {
        let said = panic_of(|| match rank {
            0 => drop(engine.gather_numbers(&[1.0]).map(<[f64]>::to_vec)),
            _ => drop(engine.evaluate(fill)),
        });
        assert!(said.contains("makes another call than rank"), "{said}");
    });
}

#[test]
fn ranks_with_other_numbers_are_stopped() {
    run(1, true, |_, engine| {
        // One rank alone is always in turn with itself.
        for _ in 0..2 {
            engine.step(&HYPER, fill).expect("a step without faults");
            engine.evaluate(fill).expect("an evaluation");
            engine.gather_numbers(&[1.0, 2.0]).expect("numbers");
        }
    });
    run(2, true, |rank, engine| {
        let said = panic_of(|| drop(engine.gather_numbers(&[1.0, 2.0][..=rank]).map(<[f64]>::to_vec)));
        assert!(said.contains("makes another call than rank"), "{said}");
    });
}

#[test]
fn nothing_is_computed_before_parameters_are_set() {
    run(1, false, |_, engine| {
        let expected = "`initialize` or `load` come first: 0 of 5 units have parameters";
        assert_eq!(panic_of(|| drop(engine.step(&HYPER, fill))), expected);
        assert_eq!(panic_of(|| drop(engine.evaluate(fill))), expected);
        assert_eq!(panic_of(|| _ = engine.predict(&[0], &mut [0.0; 29])), expected);
        assert_eq!(panic_of(|| drop(engine.parameters(0))), expected);
        let params = engine.plan().units[0].params;
        engine.load(0, &vec![0.0; params]);
        assert!(panic_of(|| drop(engine.step(&HYPER, fill))).contains("1 of 5 units"));
        assert_eq!(engine.gather_numbers(&[3.0]), Ok(&[3.0][..]), "what needs no parameters");
    });
}

#[test]
fn all_are_told_what_the_first_rank_of_the_last_pipeline_stage_knows() {
    for mesh in
        [mesh(2, 1, 2), mesh(3, 2, 1), Mesh { order: [Axis::Pipeline, Axis::Zero, Axis::Replica], ..mesh(2, 1, 2) }]
    {
        let main = |transport: Shared<'_, Cpu>| {
            let mut engine = Engine::new(Untied::PROGRAM, transport);
            let known = engine.arena().rank() as f64;
            engine.from_last_pipeline_stage(known).expect("numbers")
        };
        let config = Config { mesh, ..CONFIG.at_stage(0) };
        let told = PlanBuf::new("", config, Untied::PLAN.units).with(|plan| local::run(plan, |_| false, main));
        let first = mesh.rank(Coordinates { pipeline: mesh.pipeline - 1, replica: 0, zero: 0 });
        assert_eq!(told.expect("memory"), vec![first as f64; mesh.ranks()]);
    }
}

const UNFINISHED: &str = "the last call of this engine did not finish";

#[test]
fn an_engine_whose_data_panicked_does_no_more() {
    run(1, true, |_, engine| {
        assert_eq!(panic_of(|| drop(engine.step(&HYPER, |_, _, _| panic!("no data")))), "no data");
        for said in [
            panic_of(|| drop(engine.step(&HYPER, fill))),
            panic_of(|| drop(engine.gather_numbers(&[1.0]).map(<[f64]>::to_vec))),
            panic_of(|| drop(engine.parameters(0))),
        ] {
            assert!(said.starts_with(UNFINISHED), "{said}");
        }
    });
}

#[test]
fn an_engine_that_lost_a_rank_does_no_more() {
    let config = Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(0) };
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = Engine::new(Untied::PROGRAM, transport);
        engine.initialize(7);
        if engine.arena().rank() == 1 {
            return false;
        }
        assert_eq!(engine.step(&HYPER, fill), Err(RunError::Lost(Lost::Ended { rank: 1 })));
        assert!(panic_of(|| drop(engine.evaluate(fill))).starts_with(UNFINISHED));
        true
    };
    let ranks = PlanBuf::new("", config, Untied::PLAN.units).with(|plan| local::run(plan, |done| !done, main));
    assert_eq!(ranks.expect("memory"), [true, false]);
}

/// After a call that ends with the same error on all ranks, the ranks are still in turn.
#[test]
fn an_engine_goes_on_after_a_number_that_is_not_finite() {
    run(2, true, |_, engine| {
        let endless = Hyper { lr: f64::INFINITY, ..HYPER };
        engine.step(&endless, fill).expect("the loss before the update");
        assert!(matches!(engine.step(&HYPER, fill), Err(RunError::NonFinite(_))));
        assert!(matches!(engine.evaluate(fill), Err(RunError::NonFinite(_))));
        assert_eq!(engine.from_last_pipeline_stage(4.0), Ok(4.0));
    });
}
