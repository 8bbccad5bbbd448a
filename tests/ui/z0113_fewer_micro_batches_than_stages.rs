//! 2 micro-batches leave a pipeline of 4 idle.
use zero_runtime::prelude::*;

#[zero(stage = 1, pipeline = 4, micro_batches = 2)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
