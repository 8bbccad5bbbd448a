//! Five units do not lie evenly on two pipeline stages.
use zero_runtime::prelude::*;

#[zero(stage = 3, pipeline = 2, micro_batches = 4, units = Even)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layers: [Linear<8, 8>; 3],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
