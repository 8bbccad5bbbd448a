//! Repeats: a device that repeats its work produces the same bits, in the next step and in another run.

use zero_core::model::Program;
use zero_engine::Hyper;
use zero_runtime::device::Device;
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, Outcome, Start, noise, train};

use super::engine::on_gpus;

/// More often on a GPU, because no seed determines its order.
const STEPS_ON_GPU: u64 = 100;
const STEPS: u64 = 3;
const RUNS: u64 = 3;

/// Repeats one step, which has the same data each time and learns nothing.
struct Repeat(u64);

impl Repeat {
    fn on<D: Device>(self, program: &'static Program<D>) -> Outcome {
        let config = on_gpus(program.plan.config);
        let (hyper, batch) = (Hyper { lr: 0.0, ..HYPER }, noise(config));
        train(program, config, hyper, self.0, Start::Seed(7), &|_, rank, part, ids, targets| {
            batch(0, rank, part, ids, targets);
        })
    }
}

#[test]
fn a_step_repeated_gives_the_same_bits() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    let steps = if pretend::is_hardware() { STEPS_ON_GPU } else { STEPS };
    for name in ["zero3", "bf16"] {
        let mut first = None;
        for run in 0..RUNS {
            pretend::seed(run);
            let found = Repeat(steps).on(cuda_program(name)).bits();
            for numbers in [&found.0, &found.1] {
                let other = numbers.iter().position(|number| *number != numbers[0]);
                assert_eq!((numbers.len() as u64, other), (steps, None), "{name}, run {run}: a step with other bits");
            }
            assert!(*first.get_or_insert_with(|| found.clone()) == found, "{name}: run {run} has other bits");
        }
    }
}
