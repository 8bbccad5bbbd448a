//! Decay: the parameters to which weight decay applies.

use zero_core::model::Program;
use zero_engine::{Engine, Hyper};
use zero_plan::PlanBuf;
use zero_ranks::transport::local;
use zero_runtime::author::Device;
use zero_runtime::prelude::*;
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, HYPER, noise};

/// The parameters of each unit after one step.
fn after_a_step<D: Device>(program: &'static Program<D>, decays_embeddings: bool, weight_decay: f64) -> Vec<Vec<f32>> {
    let config = CONFIG.at_stage(0);
    let ranks = PlanBuf::new("", config, program.plan.units).with(|plan| {
        local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(program, transport);
                engine.decay_embeddings(decays_embeddings);
                engine.initialize(7);
                let (noise, hyper) = (noise(config), Hyper { weight_decay, ..HYPER });
                let step = engine.step(&hyper, |micro_batch, ids, targets| noise(0, 0, micro_batch, ids, targets));
                step.expect("a step");
                let units = 0..plan.units.len();
                units.map(|unit| engine.parameters(unit).expect("all are there").unwrap_or_default()).collect()
            },
        )
    });
    ranks.expect("the memory of a tiny model").remove(0)
}

/// A tied head has only the parameters of the embedding; an untied one is a matrix like others.
fn only_embeddings_are_left_out<D: Device>(program: &'static Program<D>) {
    let (all, some, none) =
        (after_a_step(program, true, 0.1), after_a_step(program, false, 0.1), after_a_step(program, true, 0.0));
    assert!(some[0] == none[0], "the embedding does not decay");
    assert!(some[0] != all[0] && some[1] != none[1]);
    assert!(some[1..] == all[1..], "all others do");
}

#[test]
fn embeddings_can_be_left_out_of_weight_decay() {
    only_embeddings_are_left_out(Untied::PROGRAM);
    only_embeddings_are_left_out(Tied::PROGRAM);
}
