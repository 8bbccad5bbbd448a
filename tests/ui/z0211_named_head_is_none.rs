//! The same for the last field.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[weights("lm_head")]
    head: Linear<8, 65>,
}

// Not `zero_runtime::main::<Gpt>()`, which would get the same error.
fn main() {}
