//! One chunk on each rank is not interleaved.
use zero_runtime::prelude::*;

#[zero(stage = 1, pipeline = 2, micro_batches = 2, schedule = Interleaved(chunks: 1))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
