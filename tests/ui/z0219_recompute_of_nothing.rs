//! Every hundredth of three units is none.
use zero_runtime::prelude::*;

#[zero(stage = 3, recompute = Every(100))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    mlp: Linear<8, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
