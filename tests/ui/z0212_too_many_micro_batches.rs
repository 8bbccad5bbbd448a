//! More ops than the compiler evaluates in a few seconds.
use zero_runtime::prelude::*;

#[zero(stage = 3, micro_batches = 8000)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
