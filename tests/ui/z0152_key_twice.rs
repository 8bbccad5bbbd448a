//! A key is given once.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
#[config({ "hidden_size": 8, "hidden_size": 9 })]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
