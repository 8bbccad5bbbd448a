//! The input of each element is the output of the previous one.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    blocks: [Linear<8, 16>; 2],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
