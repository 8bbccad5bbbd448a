//! Trains the tiny model of a spec for a few steps as the spec and words of [`zero_tests::layout`] say, on ranks that are
//! processes, holds what each rank mapped and moved against the plan, and prints what came of it to the bit.
//!
//! `spec NAME [WORD...]`

use std::process::ExitCode;

use zero_plan::PlanBuf;
use zero_runtime::launch::{self, LaunchOptions, Role};
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_runtime::transport::shm;
use zero_tests::layout::{CUDA, changed};
use zero_tests::specs::{Visitor, visit, visit_cuda};
use zero_tests::training::{HYPER, STEPS, Start, Told, assert_as_planned, noise, train_rank};

/// A layout in words.
struct Run(Vec<String>);

impl Visitor for Run {
    type Output = ExitCode;

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> ExitCode {
        let plan = PlanBuf::new(M::PLAN.model, changed(M::PLAN.config, &self.0), M::PLAN.units);
        let stages = plan.stages();
        let plan = &plan.as_plan(&stages);
        let ranks = plan.config.mesh.ranks();
        let place = match launch::role(ranks).expect("an environment without contradictions") {
            Role::Launcher => return launch::launch(ranks, &LaunchOptions::default()),
            Role::Rank(place) => place,
        };
        let (transport, watch) = shm::join(plan, &place, 0).expect("peers");
        let outcome =
            train_rank::<M, _>(transport, HYPER, STEPS, Start::Seed(7), &noise(plan.config)).expect("no faults");
        assert_as_planned(plan, place.rank, STEPS, outcome.moved[0], outcome.mapped_bytes[0]);
        watch.goodbye();
        println!("{}", Told::of(&outcome));
        ExitCode::SUCCESS
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("the name of a spec");
    let words: Vec<String> = arguments.collect();
    let found =
        if words.iter().any(|word| word == CUDA) { visit_cuda(&name, Run(words)) } else { visit(&name, Run(words)) };
    found.expect("a spec of that name")
}
