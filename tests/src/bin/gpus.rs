//! A small model of text on GPUs that reach one another, or, if its first argument is `nccl`, on GPUs that NCCL connects.

use std::process::ExitCode;

use zero_runtime::prelude::*;
use zero_tests::small::main_of;
use zero_tests::small_model;

small_model! { #[zero(spec = "specs/gpus.ron")] Gpus }
small_model! { #[zero(spec = "specs/nccl.ron")] Nccl }

fn main() -> ExitCode {
    main_of::<Gpus, Nccl>("nccl")
}
