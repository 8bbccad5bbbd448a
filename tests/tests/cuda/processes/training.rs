//! What ranks that are processes train is, to the bit, what ranks that are threads do, whatever order each of their devices
//! works in; and each rank maps and moves what its plan says, which the program asserts.

use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::layout::{CUDA, NCCL, changed};
use zero_tests::pretend;
use zero_tests::specs::{Visitor, visit_cuda};
use zero_tests::training::{HYPER, STEPS, Start, Told, noise, train};

use super::on_cuda;
use crate::run::Run;

/// Each in an order of its own.
const SEEDS: u64 = 2;

/// Trains a layout on threads.
struct Train<'a>(&'a [&'a str]);

impl Visitor for Train<'_> {
    type Output = (Told, usize);

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> Self::Output {
        let config = changed(M::PLAN.config, self.0);
        (Told::of(&train::<M>(config, HYPER, STEPS, Start::Seed(7), &noise(config))), config.mesh.ranks())
    }
}

/// Trains these layouts on processes, each in several orders, and holds them against threads whose devices reach one another.
fn train_alike<const N: usize>(rows: &[[&str; N]]) {
    if pretend::libraries().is_none() || !pretend::is_cuda() {
        return;
    }
    for (number, words) in rows.iter().enumerate() {
        let name = if number % 2 == 0 { "zero3" } else { "bf16" };
        let reached: Vec<&str> = words.iter().copied().filter(|&word| word != NCCL).collect();
        let (expected, ranks) = visit_cuda(name, Train(&reached)).expect("a spec of that name");
        for seed in 0..SEEDS {
            let seed = (number as u64 * SEEDS + seed).to_string();
            let mut command = on_cuda(env!("CARGO_BIN_EXE_spec")).expect("pretended devices");
            let end = Run::start(command.arg(name).args(words).env("PRETEND_SEED", &seed)).end();
            assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{name} {words:?}, seed {seed}");
            let told: Vec<Told> = end.lines.iter().map(|line| Told::read(line)).collect();
            assert_eq!(told.len(), ranks);
            for (rank, told) in told.iter().enumerate() {
                assert!(told.is_part_of(&expected), "{name} {words:?}, seed {seed}: rank {rank} has other bits");
            }
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
    train_alike(&[
        [CUDA, NCCL, "mesh=1x1x1", "stage=0", "bucket=1"],
        [CUDA, NCCL, "mesh=1x3x1", "stage=0", "bucket=1"],
        [CUDA, NCCL, "mesh=1x1x2", "stage=1", "bucket=1"],
        [CUDA, NCCL, "mesh=1x1x3", "stage=2", "bucket=40000"],
        [CUDA, NCCL, "mesh=1x2x2", "stage=3", "prefetch=1"],
        [CUDA, NCCL, "mesh=2x1x2", "stage=3", "micro_batches=3"],
    ]);
}
