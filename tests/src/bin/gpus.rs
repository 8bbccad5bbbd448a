//! The smallest model of text whose training takes every part of the runtime on GPUs.

use zero_runtime::prelude::*;

#[zero(spec = "specs/gpus.ron")]
struct Gpus {
    embed: Embedding<256, 16, 12>,
    mlp: Linear<12, 12>,
    norm: LayerNorm<12>,
    head: LmHead<12, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpus>()
}
