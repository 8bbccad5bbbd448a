//! The master copy would hold less than the parameters.
use zero_runtime::prelude::*;

#[zero(stage = 1, master = BF16)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
