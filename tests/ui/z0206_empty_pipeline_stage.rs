//! Three units do not fill four pipeline stages.
use zero_runtime::prelude::*;

#[zero(stage = 3, pipeline = 4, micro_batches = 4)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layer: Linear<8, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
