//! The spec does not say how long sequences are, and the default is longer than the context.
use zero_runtime::prelude::*;

#[zero(spec = "specs/zero3.ron")]
struct Gpt {
    embed: Embedding<65, 128, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
