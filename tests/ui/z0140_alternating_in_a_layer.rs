//! Only units take turns.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    #[alternating]
    mlp: (Linear<8, 8>, Linear<8, 8>),
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
