//! A text has 256 different bytes, and the embedding takes 100 of them.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<100, 256, 8>,
    head: LmHead<8, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
