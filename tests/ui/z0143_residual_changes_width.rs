//! 8 features cannot be added to 16.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Block {
    #[residual]
    mlp: (LayerNorm<8>, Linear<8, 16>),
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
