//! Ranks that are processes train to the bits of ranks that are threads, in whatever order each of their devices works. The program
//! asserts that each rank maps and moves the planned bytes.

use zero_core::model::Program;
use zero_cuda::DEVICES_VARIABLE;
use zero_runtime::device::Device;
use zero_tests::layout::{CUDA, NCCL, changed};
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, STEPS, Start, Told, noise, train};

use super::told;

/// Trains a layout on threads.
struct Train<'a>(&'a [&'a str]);

impl Train<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) -> (Told, usize) {
        let config = changed(program.plan.config, self.0);
        (Told::of(&train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config))), config.mesh.ranks())
    }
}

/// Trains a spec under a layout on threads, and on processes whose devices reach one another or are connected by NCCL, each in an
/// order that a seed determines.
fn train_alike(name: &str, layout: &[&str], seed: usize) {
    let reached = [&[CUDA], layout].concat();
    let (expected, ranks) = Train(&reached).on(cuda_program(name));
    let mut connected = vec![reached];
    if pretend::is_nccl() {
        connected.push([&[CUDA, NCCL], layout].concat());
    }
    for words in connected {
        let told = told(name, &words, &[("PRETEND_SEED", &seed.to_string())]);
        assert_eq!(told.len(), ranks);
        for (rank, told) in told.iter().enumerate() {
            assert!(told.is_part_of(&expected), "{name} {words:?}, seed {seed}: rank {rank} has other bits");
        }
    }
}

#[test]
fn processes_train_to_the_bits_of_threads() {
    if !pretend::is_cuda() {
        return;
    }
    train_alike("zero3", &["mesh=1x1x1", "stage=0", "bucket=1"], 0);
    train_alike("bf16", &["mesh=1x3x1", "stage=0", "bucket=1"], 1);
    train_alike("zero3", &["mesh=1x1x2", "stage=1", "bucket=1"], 2);
    train_alike("bf16", &["mesh=1x1x3", "stage=2", "bucket=40000"], 3);
    train_alike("zero3", &["mesh=1x1x4", "stage=3", "prefetch=2"], 4);
    train_alike("bf16", &["mesh=1x2x2", "stage=3", "prefetch=1"], 5);
    train_alike("zero3", &["mesh=2x1x2", "stage=3", "micro_batches=3"], 6);
}

#[test]
fn ranks_that_share_a_device_train_to_the_bits_of_ranks_with_one_each() {
    if !pretend::is_cuda() {
        return;
    }
    let words = [CUDA, "mesh=1x1x2", "stage=3", "prefetch=1", "steps=5"];
    let expected = told("zero3", &words, &[]);
    assert_eq!(expected.len(), 2);
    let shared = [("PRETEND_DEVICES", "1"), (DEVICES_VARIABLE, "0,0")];
    assert_eq!(told("zero3", &words, &shared), expected);
}
