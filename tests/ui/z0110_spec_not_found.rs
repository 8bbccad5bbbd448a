//! There is no such file.
use zero_runtime::prelude::*;

#[zero(spec = "specs/zero4.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
