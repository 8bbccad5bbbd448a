//! The output of the last in turn is the input of the first.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[alternating]
    blocks: [(Linear<8, 16>, Linear<16, 9>); 2],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
