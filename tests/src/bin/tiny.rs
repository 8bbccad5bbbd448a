//! The smallest model of text whose training takes every part of the runtime: what the tests of processes start.

use zero_runtime::prelude::*;

#[zero(stage = 3, prefetch = 1, ranks = 3, sequences = 2, length = 16)]
struct Tiny {
    embed: Embedding<256, 16, 12>,
    mlp: Linear<12, 12>,
    norm: LayerNorm<12>,
    head: LmHead<12, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Tiny>()
}
