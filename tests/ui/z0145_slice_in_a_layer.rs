//! A slice is not a layer. No model has this layer: the compiler would miss its size too.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    layers: [Linear<8, 8>],
}

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
