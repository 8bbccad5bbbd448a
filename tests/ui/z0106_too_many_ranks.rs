//! 128 x 64 ranks are more than a mesh has.
use zero_runtime::prelude::*;

#[zero(stage = 1, ranks = 128, replica = 64)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
