//! A slip in the attribute of a layer.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    #[resdual]
    mlp: Linear<8, 8>,
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
