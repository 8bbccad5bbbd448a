//! One micro-batch is a whole step.
use zero_runtime::prelude::*;

#[zero(stage = 2, reduce = PerStep)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
