//! Training on CUDA devices: every spec agrees with the processor to rounding, and stages and meshes give the same
//! bits, in whatever order a device runs its queues.

use zero_core::model::Program;
use zero_plan::{Config, DeviceKind, Precision, TransportKind};
use zero_runtime::device::Device;
use zero_tests::layout::{CUDA, changed};
use zero_tests::pretend;
use zero_tests::specs::{NAMES, cuda_program, program};
use zero_tests::training::{HYPER, Outcome, STEPS, Start, Told, noise, train};

use super::processes;

/// Trains the layout of a spec, or another one of the same model, on the model's device.
struct Train<F>(F);

impl<F: Fn(Config) -> Config> Train<F> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Outcome {
        let config = (self.0)(program.plan.config);
        train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config))
    }
}

/// A configuration for GPUs: its gathers, streams and places.
pub fn on_gpus(config: Config) -> Config {
    Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, memory_bytes: None, ..config }
}

pub fn on_cuda(name: &str, change: impl Fn(Config) -> Config) -> Outcome {
    over(TransportKind::Peer, name, change)
}

pub fn over(transport: TransportKind, name: &str, change: impl Fn(Config) -> Config) -> Outcome {
    Train(|config| Config { transport, ..on_gpus(change(config)) }).on(cuda_program(name))
}

/// The results of training under a layout; a seed determines the order in which devices work.
fn told(name: &str, words: &[&str], seed: u64) -> Told {
    pretend::seed(seed);
    Told::of(&Train(|config| changed(config, words)).on(cuda_program(name)))
}

fn assert_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_near = (found - expected).abs() <= tolerance * expected;
        assert!(is_near, "{what} of step {step} is {found}, on the processor {expected}");
    }
}

/// Processes have the bits of threads, and agree with the processor to rounding. Values in bf16 are rounded to 8 bits at every
/// step, and two that differ in the last bit of f32 may round to different values.
#[test]
fn every_spec_trains_as_on_the_processor() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    for (seed, &name) in NAMES.iter().enumerate() {
        let on_cpu = Train(|config| config).on(program(name));
        let all = told(name, &[CUDA], 0);
        for (rank, one) in processes::told(name, &[CUDA], &[("PRETEND_SEED", &seed.to_string())]).iter().enumerate() {
            assert!(one.is_part_of(&all), "{name}, seed {seed}: rank {rank}, a process, has other bits");
        }
        let numbers: Vec<f64> = all.numbers.into_iter().map(f64::from_bits).collect();
        let (losses, norms) = numbers.split_at(STEPS as usize);
        let precision = program(name).plan.config.precision;
        let tolerance = if precision == Precision::default() { 1e-4 } else { 2e-2 };
        assert_near(&format!("{name}: loss"), losses, &on_cpu.losses, tolerance);
        assert_near(&format!("{name}: norm"), norms, &on_cpu.norms, tolerance);
    }
}

/// Four data-parallel ranks, at each stage and in several meshes, with and without prefetch, in f32, in bf16 and with Muon. The
/// devices run their queues in another order each time.
#[test]
fn stages_and_meshes_give_the_same_bits() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    let mut seed = 1;
    for name in ["zero3", "bf16", "muon"] {
        let of = |layout: [&str; 4], seed| told(name, &[&[CUDA][..], &layout].concat(), seed);
        let expected = of(["mesh=1x1x4", "stage=0", "prefetch=0", "bucket=1000000000"], 0);
        for layout in [
            ["mesh=1x1x4", "stage=1", "prefetch=0", "bucket=1"],
            ["mesh=1x1x4", "stage=2", "prefetch=0", "bucket=1"],
            ["mesh=1x1x4", "stage=3", "prefetch=2", "bucket=1"],
            ["mesh=1x2x2", "stage=3", "prefetch=1", "bucket=40000"],
            ["mesh=1x4x1", "stage=0", "prefetch=0", "bucket=1"],
        ] {
            assert!(of(layout, seed) == expected, "{name}: {layout:?} has other bits with seed {seed}");
            seed += 1;
        }
    }
}
