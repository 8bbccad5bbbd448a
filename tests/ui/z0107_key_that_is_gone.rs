//! A key that specs had once.
use zero_runtime::prelude::*;

#[zero(spec = "specs/key_that_is_gone.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
