//! Names in RON begin with a letter.
use zero_runtime::prelude::*;

#[zero(stage = 1, pipeline = 2, micro_batches = 2, schedule = 1F1B)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
