//! A norm of two gains cannot be cut into four shards.
use zero_runtime::prelude::*;

#[zero(stage = 3, ranks = 4)]
struct Gpt {
    embed: Embedding<65, 256, 2>,
    norm: RmsNorm<2>,
    head: LmHead<2, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
