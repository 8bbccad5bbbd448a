//! A norm returns no loss.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    norm: LayerNorm<8>,
}

// Not `zero_runtime::main::<Gpt>()`, which would get the same error.
fn main() {}
