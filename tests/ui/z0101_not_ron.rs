//! A comma is missing between two sections of the spec.
use zero_runtime::prelude::*;

#[zero(spec = "specs/missing_comma.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
