//! The second pipeline stage has no units.
use zero_runtime::prelude::*;

#[zero(stage = 1, pipeline = 2, micro_batches = 2, units = Split([2, 0]))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
