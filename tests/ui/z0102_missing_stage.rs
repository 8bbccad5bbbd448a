//! There is no default stage.
use zero_runtime::prelude::*;

#[zero(ranks = 4)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
