//! The derive is missing.
use zero_runtime::prelude::*;

struct Block {
    norm: LayerNorm<8>,
}

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    blocks: [Block; 2],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
