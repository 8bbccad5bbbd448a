//! There is no rank to train.
use zero_runtime::prelude::*;

#[zero(stage = 3, ranks = 0)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
