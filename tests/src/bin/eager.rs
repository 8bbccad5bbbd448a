//! `tiny` with another prefetch: the same shared memory under another plan.

use zero_runtime::prelude::*;

#[zero(stage = 3, prefetch = 2, ranks = 3, sequences = 2, length = 16)]
struct Eager {
    embed: Embedding<256, 16, 12>,
    mlp: Linear<12, 12>,
    norm: LayerNorm<12>,
    head: LmHead<12, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Eager>()
}
