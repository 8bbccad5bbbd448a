//! What ranks that are processes train is, to the bit, what ranks that are threads do, whatever order each of their devices
//! works in; and each rank maps and moves what its plan says, which the program asserts.

use zero_runtime::device::cuda::DEVICES_VARIABLE;
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::layout::{CUDA, ConfigOf, NCCL, changed};
use zero_tests::pretend;
use zero_tests::specs::{NAMES, Visitor, visit_cuda};
use zero_tests::training::{HYPER, STEPS, Start, Told, noise, train};

use super::told;

/// Trains a layout on threads.
struct Train<'a>(&'a [&'a str]);

impl Visitor for Train<'_> {
    type Output = (Told, usize);

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> Self::Output {
        let config = changed(M::PLAN.config, self.0);
        (Told::of(&train::<M>(config, HYPER, STEPS, Start::Seed(7), &noise(config))), config.mesh.ranks())
    }
}

/// Trains a spec under a layout on processes, each in the order that a seed gives it, and compares them with threads whose devices
/// reach one another.
fn train_alike(name: &str, words: &[&str], seed: usize) {
    let config = visit_cuda(name, ConfigOf).expect("a spec of that name");
    if !pretend::are_tested_as_threads(changed(config, words).mesh.ranks()) {
        return;
    }
    let reached: Vec<&str> = words.iter().copied().filter(|&word| word != NCCL).collect();
    let (expected, ranks) = visit_cuda(name, Train(&reached)).expect("a spec of that name");
    let told = told(name, words, &[("PRETEND_SEED", &seed.to_string())]);
    assert_eq!(told.len(), ranks);
    for (rank, told) in told.iter().enumerate() {
        assert!(told.is_part_of(&expected), "{name} {words:?}, seed {seed}: rank {rank} has other bits");
    }
    eprintln!("{name} {words:?}, seed {seed}: equal");
}

#[test]
fn processes_train_to_the_bits_of_threads() {
    if !pretend::is_cuda() {
        return;
    }
    for (seed, layout) in [
        ["mesh=1x1x1", "stage=0", "bucket=1"],
        ["mesh=1x3x1", "stage=0", "bucket=1"],
        ["mesh=1x1x2", "stage=1", "bucket=1"],
        ["mesh=1x1x3", "stage=2", "bucket=40000"],
        ["mesh=1x1x4", "stage=3", "prefetch=2"],
        ["mesh=1x2x2", "stage=3", "prefetch=1"],
        ["mesh=2x1x2", "stage=3", "micro_batches=3"],
    ]
    .iter()
    .enumerate()
    {
        let name = ["zero3", "bf16"][seed % 2];
        train_alike(name, &[&[CUDA][..], layout].concat(), seed);
        if !pretend::is_hardware() {
            train_alike(name, &[&[CUDA, NCCL][..], layout].concat(), seed);
        }
    }
}

/// The layout and the widths of each, with as many processes as it has ranks.
#[test]
fn every_spec_trains_on_processes_to_the_bits_of_threads() {
    if !pretend::is_cuda() {
        return;
    }
    for (seed, name) in NAMES.iter().enumerate() {
        train_alike(name, &[CUDA], seed);
    }
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
