//! Too many chunks to count are refused before there is a table of them.
use zero_runtime::prelude::*;

#[zero(stage = 3, pipeline = 2, micro_batches = 4, schedule = Interleaved(chunks: 4294967295))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
