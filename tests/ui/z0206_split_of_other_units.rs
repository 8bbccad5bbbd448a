//! The split is of six units, the model has five.
use zero_runtime::prelude::*;

#[zero(stage = 3, pipeline = 2, micro_batches = 4, units = Split([3, 3]))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layers: [Linear<8, 8>; 3],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
