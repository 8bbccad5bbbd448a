//! There is no axis `tensor`.
use zero_runtime::prelude::*;

#[zero(spec = "specs/tensor_axis.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
