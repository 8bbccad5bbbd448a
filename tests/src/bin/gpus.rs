//! A small model of text on GPUs that reach one another. If its first argument is `nccl`, NCCL connects the GPUs; if it is
//! `host`, their hosts keep the optimizer states.

use std::process::ExitCode;

use zero_runtime::prelude::*;
use zero_tests::small::main_of;
use zero_tests::small_model;

small_model! { #[zero(spec = "specs/gpus.ron")] Gpus }
small_model! { #[zero(spec = "specs/nccl.ron")] Nccl }
small_model! { #[zero(spec = "specs/gpu_states.ron")] GpuStates }

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == "host") {
        return main_of::<Gpus, GpuStates>("host");
    }
    main_of::<Gpus, Nccl>("nccl")
}
