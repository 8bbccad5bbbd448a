//! Every file of `specs/`, trained on the naive device as on the processor: the engine, the arena and the collectives
//! look into memory only through the device that they are given.

use zero_core::model::Program;
use zero_plan::Precision;
use zero_runtime::device::Device;
use zero_tests::specs::{NAMES, naive_program, program};
use zero_tests::training::{HYPER, Outcome, STEPS, Start, noise, train};

struct Train;

impl Train {
    fn on<D: Device>(self, program: &'static Program<D>) -> Outcome {
        let config = program.plan.config;
        train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config))
    }
}

/// Values in bf16 are rounded to 8 bits at every step, and two that differ in the last bit of f32 may round to different values.
fn tolerance(name: &str) -> f64 {
    let plan = program(name).plan;
    if plan.config.precision == Precision::default() { 1e-4 } else { 2e-2 }
}

#[test]
fn every_spec_trains_to_within_rounding_of_the_processor() {
    for &name in NAMES {
        let on_cpu = Train.on(program(name));
        let on_naive = Train.on(naive_program(name));
        let tolerance = tolerance(name);
        for (what, found, expected) in
            [("loss", &on_naive.losses, &on_cpu.losses), ("norm", &on_naive.norms, &on_cpu.norms)]
        {
            assert_eq!(found.len(), STEPS as usize, "{name}");
            for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
                let is_near = (found - expected).abs() <= tolerance * expected;
                assert!(is_near, "{name}: {what} of step {step} is {found}, on the processor {expected}");
            }
        }
        // Parameters after a step of AdamW show little: if a gradient is only rounding, its sign decides.
        for (unit, (found, expected)) in on_naive.gradients.iter().zip(&on_cpu.gradients).enumerate() {
            assert_eq!(found.len(), expected.len(), "{name}: unit {unit}");
            let largest = expected.iter().fold(0.0, |most: f32, gradient| most.max(gradient.abs()));
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let is_near = f64::from((found - expected).abs()) <= tolerance * f64::from(largest);
                assert!(is_near, "{name}: gradient {i} of unit {unit} is {found}, on the processor {expected}");
            }
        }
    }
}
