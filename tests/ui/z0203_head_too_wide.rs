//! A head of 1028 features is wider than attention has room for.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 1028>,
    attention: CausalSelfAttention<1028, 1>,
    head: LmHead<1028, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
