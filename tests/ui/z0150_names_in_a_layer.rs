//! A tuple inside of a layer has a name for each element, too.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    #[weights("norm", "map", _)]
    mlp: (LayerNorm<8>, Linear<8, 8>),
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
