//! Trains the tiny model of a spec for a few steps on ranks that are processes, in a layout that the spec and words of
//! [`zero_tests::layout`] describe. Compares the bytes that each rank mapped and moved with the plan, and prints the results to the bit.
//!
//! `spec NAME [WORD...]`; a word such as `steps=20` sets the number of steps

use std::process::ExitCode;

use zero_core::model::{Model, Program};
use zero_plan::PlanBuf;
use zero_ranks::launch::{self, LaunchOptions, Role};
use zero_ranks::transport::{cluster, shm};
use zero_runtime::device::Device;
use zero_tests::layout::{CUDA, changed};
use zero_tests::specs::{Wide, cuda_program, program};
use zero_tests::training::{
    HYPER, STEPS, Start, Told, assert_as_planned, assert_crosses_as_planned, noise, train_rank,
};

/// A layout in words, and the number of steps to train it.
struct Run(Vec<String>, u64);

impl Run {
    fn on<D: Device>(self, program: &'static Program<D>) -> ExitCode {
        let plan = PlanBuf::new(program.plan.model, changed(program.plan.config, &self.0), program.plan.units);
        let pipeline_stages = plan.pipeline_stages();
        let plan = &plan.as_plan(&pipeline_stages);
        let ranks = plan.config.mesh.ranks();
        let place = match launch::role(ranks).expect("an environment without contradictions") {
            Role::Launcher => return launch::launch(ranks, &LaunchOptions::default()),
            Role::Rank(place) => place,
        };
        let (transport, watch) = match shm::join(plan, &place, 0) {
            Ok(joined) => joined,
            Err(error) => {
                // Another rank prints the results that this rank only repeats.
                if !error.is_echo() {
                    eprintln!("{}", error.report());
                }
                return ExitCode::from(error.exit_code());
            }
        };
        let outcome =
            train_rank(program, transport, HYPER, self.1, Start::Seed(7), &noise(plan.config)).expect("no faults");
        assert_as_planned(plan, place.rank, self.1, outcome.moved[0], outcome.mapped_bytes[0]);
        if plan.config.mesh.nodes > 1 {
            assert_crosses_as_planned(plan, place.rank, self.1, outcome.crossed[0]);
        }
        cluster::leave();
        watch.finish();
        println!("{}", Told::of(&outcome));
        ExitCode::SUCCESS
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("the name of a spec");
    let (steps, words): (Vec<String>, Vec<String>) = arguments.partition(|word| word.starts_with("steps="));
    let steps = steps.first().map_or(STEPS, |word| word["steps=".len()..].parse().expect("a number of steps"));
    if words.iter().any(|word| word == CUDA) {
        Run(words, steps).on(cuda_program(&name))
    } else if name == "wide" {
        Run(words, steps).on(Wide::PROGRAM)
    } else {
        Run(words, steps).on(program(&name))
    }
}
