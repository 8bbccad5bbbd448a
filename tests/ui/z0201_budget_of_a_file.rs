//! The budget is in the spec, and so are the keys that the error names.
use zero_runtime::prelude::*;

#[zero(spec = "specs/tight.ron")]
struct Gpt {
    embed: Embedding<4096, 256, 512>,
    head: LmHead<512, 4096>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
