//! Trains the tiny model of a spec for a few steps as the spec says, on ranks that are processes, holds what each rank
//! mapped and moved against the plan, and prints what came of it to the bit.
//!
//! `spec NAME [PREFETCH]`

use std::process::ExitCode;

use zero_plan::{Config, PlanBuf};
use zero_runtime::launch::{self, LaunchOptions, Role};
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_runtime::transport::shm;
use zero_tests::specs::{Visitor, visit};
use zero_tests::training::{HYPER, STEPS, Start, Told, assert_as_planned, noise, train_rank};

struct Run {
    prefetch: Option<usize>,
}

impl Visitor for Run {
    type Output = ExitCode;

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> ExitCode {
        let config = Config { prefetch: self.prefetch.unwrap_or(M::PLAN.config.prefetch), ..M::PLAN.config };
        let plan = PlanBuf::new(M::PLAN.model, config, M::PLAN.units);
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
    let prefetch = arguments.next().map(|units| units.parse().expect("a number of units"));
    visit(&name, Run { prefetch }).expect("a spec of that name")
}
