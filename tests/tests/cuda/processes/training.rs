//! What ranks that are processes train is, to the bit, what ranks that are threads do, whatever order each of their devices
//! works in; and each rank maps and moves what its plan says, which the program asserts.

use zero_runtime::device::cuda::DEVICES_VARIABLE;
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::layout::{CUDA, ConfigOf, NCCL, changed};
use zero_tests::pretend;
use zero_tests::specs::{Visitor, visit_cuda};
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

/// Trains these layouts on processes, each in an order of its own, and compares them with threads whose devices reach one another.
fn train_alike<const N: usize>(rows: &[[&str; N]]) {
    if !pretend::is_cuda() {
        return;
    }
    for (number, words) in rows.iter().enumerate() {
        let name = if number % 2 == 0 { "zero3" } else { "bf16" };
        let config = visit_cuda(name, ConfigOf).expect("a spec of that name");
        if !pretend::are_tested_as_threads(changed(config, words).mesh.ranks()) {
            continue;
        }
        let reached: Vec<&str> = words.iter().copied().filter(|&word| word != NCCL).collect();
        let (expected, ranks) = visit_cuda(name, Train(&reached)).expect("a spec of that name");
        let told = told(name, words, &[("PRETEND_SEED", &number.to_string())]);
        assert_eq!(told.len(), ranks);
        for (rank, told) in told.iter().enumerate() {
            assert!(told.is_part_of(&expected), "{name} {words:?}, seed {number}: rank {rank} has other bits");
        }
    }
}

#[test]
fn processes_train_to_the_bits_of_threads() {
    train_alike(&[
        [CUDA, "mesh=1x1x1", "stage=0", "bucket=1"],
        [CUDA, "mesh=1x3x1", "stage=0", "bucket=1"],
        [CUDA, "mesh=1x1x2", "stage=1", "bucket=1"],
        [CUDA, "mesh=1x1x3", "stage=2", "bucket=40000"],
        [CUDA, "mesh=1x1x4", "stage=3", "prefetch=2"],
        [CUDA, "mesh=1x2x2", "stage=3", "prefetch=1"],
        [CUDA, "mesh=2x1x2", "stage=3", "micro_batches=3"],
    ]);
}

#[test]
fn processes_that_nccl_connects_train_to_the_bits_of_threads() {
    if pretend::libraries().is_none() {
        return;
    }
    train_alike(&[
        [CUDA, NCCL, "mesh=1x1x1", "stage=0", "bucket=1"],
        [CUDA, NCCL, "mesh=1x3x1", "stage=0", "bucket=1"],
        [CUDA, NCCL, "mesh=1x1x2", "stage=1", "bucket=1"],
        [CUDA, NCCL, "mesh=1x1x3", "stage=2", "bucket=40000"],
        [CUDA, NCCL, "mesh=1x2x2", "stage=3", "prefetch=1"],
        [CUDA, NCCL, "mesh=2x1x2", "stage=3", "micro_batches=3"],
    ]);
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
