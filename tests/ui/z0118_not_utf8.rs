//! The spec was saved as Latin-1.
use zero_runtime::prelude::*;

#[zero(spec = "specs/latin1.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
