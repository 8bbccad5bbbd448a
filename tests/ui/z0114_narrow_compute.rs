//! The device computes in F32.
use zero_runtime::prelude::*;

#[zero(spec = "specs/narrow_compute.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
