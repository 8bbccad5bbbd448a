//! No model has so few units that its schedule would be small enough.
use zero_runtime::prelude::*;

#[zero(stage = 3, micro_batches = 4294967295)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
