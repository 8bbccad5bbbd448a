//! Training on CUDA devices: every spec as on the processor, to rounding; stages and meshes to the same bits; whatever order the
//! queues of a device are worked off in.

use zero_plan::config::{Device, Precision};
use zero_plan::{Config, Mesh, TransportKind};
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::pretend;
use zero_tests::specs::{NAMES, Visitor, visit, visit_cuda};
use zero_tests::training::{HYPER, Outcome, STEPS, Start, mesh, noise, train};

/// What a spec says, or another layout of the same model; on the device of the model.
struct Train<F>(F);

impl<F: Fn(Config) -> Config> Visitor for Train<F> {
    type Output = Outcome;

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> Outcome {
        let config = (self.0)(M::PLAN.config);
        train::<M>(config, HYPER, STEPS, Start::Seed(7), &noise(config))
    }
}

/// A configuration for GPUs: its gathers, streams and places.
fn on_gpus(config: Config) -> Config {
    Config { device: Device::Cuda, transport: TransportKind::Peer, memory_bytes: None, ..config }
}

pub fn on_cuda(name: &str, change: impl Fn(Config) -> Config) -> Outcome {
    over(TransportKind::Peer, name, change)
}

pub fn over(transport: TransportKind, name: &str, change: impl Fn(Config) -> Config) -> Outcome {
    visit_cuda(name, Train(|config| Config { transport, ..on_gpus(change(config)) })).expect("a spec of that name")
}

fn assert_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_near = (found - expected).abs() <= tolerance * expected;
        assert!(is_near, "{what} of step {step} is {found}, on the processor {expected}");
    }
}

/// What is bf16 is rounded to 8 bits at every step, and two that differ in the last bit of f32 may round apart.
#[test]
fn every_spec_trains_to_within_rounding_of_the_processor() {
    if !pretend::is_cuda() {
        return;
    }
    for &name in NAMES {
        let on_cpu = visit(name, Train(|config| config)).expect("a spec of that name");
        let on_cuda = on_cuda(name, |config| config);
        let precision = visit(name, zero_tests::specs::PlanOf).expect("a spec of that name").config.precision;
        let tolerance = if precision == Precision::default() { 1e-4 } else { 2e-2 };
        assert_near(&format!("{name}: loss"), &on_cuda.losses, &on_cpu.losses, tolerance);
        assert_near(&format!("{name}: norm"), &on_cuda.norms, &on_cpu.norms, tolerance);
    }
}

/// Orders that the queues of the devices are worked off in.
const SEEDS: u64 = 3;

/// Four ranks with data of their own, under each stage and in several meshes, gathers ahead or not, in f32 and in bf16.
#[test]
fn stages_and_meshes_give_the_same_bits() {
    if !pretend::is_cuda() {
        return;
    }
    for name in ["zero3", "bf16"] {
        let of = |mesh: Mesh, stage: u8, prefetch: usize, bucket_bytes: usize| {
            on_cuda(name, |config| Config { mesh, prefetch, bucket_bytes, ..config.at_stage(stage) }).bits()
        };
        let expected = of(mesh(1, 1, 4), 0, 0, usize::MAX);
        for (number, (mesh, stage, prefetch, bucket_bytes)) in [
            (mesh(1, 1, 4), 1, 0, 1),
            (mesh(1, 1, 4), 2, 0, 1),
            (mesh(1, 1, 4), 3, 2, 1),
            (mesh(1, 2, 2), 3, 1, 40_000),
            (mesh(1, 4, 1), 0, 0, 1),
        ]
        .into_iter()
        .enumerate()
        {
            for seed in (0..SEEDS).map(|seed| seed + SEEDS * number as u64) {
                pretend::seed(seed);
                let found = of(mesh, stage, prefetch, bucket_bytes);
                assert!(found == expected, "{name}: stage {stage} on {mesh:?} has other bits with seed {seed}");
            }
        }
    }
}
