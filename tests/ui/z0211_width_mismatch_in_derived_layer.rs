//! The first linear map gives 32 features, the second takes 33.
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Mlp {
    up: Linear<8, 32>,
    act: Gelu,
    down: Linear<33, 8>,
}

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    mlp: Mlp,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
