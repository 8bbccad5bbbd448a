//! The smallest model of text whose training takes every part of the runtime on GPUs, which reach one another, or, where its
//! first argument is `nccl`, which NCCL connects.

use std::process::ExitCode;

use zero_runtime::prelude::*;

macro_rules! model {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        struct $name {
            embed: Embedding<256, 16, 12>,
            mlp: Linear<12, 12>,
            norm: LayerNorm<12>,
            head: LmHead<12, 256>,
        }
    };
}

model! { #[zero(spec = "specs/gpus.ron")] Gpus }
model! { #[zero(spec = "specs/nccl.ron")] Nccl }

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "nccl") {
        // The word stands where the name of the program is expected.
        return zero_runtime::run::main_from::<Nccl>(std::env::args_os().skip(1));
    }
    zero_runtime::main::<Gpus>()
}
