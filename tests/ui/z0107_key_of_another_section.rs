//! Micro-batches are counted in `batch`.
use zero_runtime::prelude::*;

#[zero(spec = "specs/microbatches_in_pipeline.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
