//! The spec says stage 3.
use zero_runtime::prelude::*;

#[zero(spec = "specs/zero3.ron", stage = 2)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
