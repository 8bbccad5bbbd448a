//! An array is not a layer.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    layers: [Linear<8, 8>; 2],
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
