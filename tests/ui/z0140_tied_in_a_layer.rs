//! Only the head of a model shares parameters.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    norm: LayerNorm<8>,
    #[tied(norm)]
    again: LayerNorm<8>,
}

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    block: Block,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
