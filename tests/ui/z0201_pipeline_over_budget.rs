//! GPipe keeps the activations of all micro-batches, and stage 0 all states.
use zero_runtime::prelude::*;

#[zero(stage = 0, pipeline = 2, ranks = 2, schedule = GPipe, micro_batches = 4, length = 16, memory = MiB(66))]
struct Gpt {
    embed: Embedding<1024, 256, 512>,
    layers: [Linear<512, 512>; 6],
    head: LmHead<512, 1024>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
