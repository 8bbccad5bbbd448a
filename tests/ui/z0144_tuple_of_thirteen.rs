//! A tuple has at most 12 layers.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    mlp: (Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu),
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
