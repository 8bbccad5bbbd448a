//! No layer has a loss as its input.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    early: LmHead<8, 65>,
    norm: LayerNorm<8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
