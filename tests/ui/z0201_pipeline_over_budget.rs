//! GPipe keeps the activations of all micro-batches, and stage 0 all states.
use zero_runtime::prelude::*;

#[zero(stage = 0, pipeline = 2, ranks = 2, schedule = GPipe, micro_batches = 4, length = 16, memory = KiB(100))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layers: [Linear<8, 8>; 6],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
