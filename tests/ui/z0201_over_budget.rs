//! Stage 0 holds everything on each rank, which takes more than the budget.
use zero_runtime::prelude::*;

#[zero(stage = 0, ranks = 8, length = 16, memory = KiB(48))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
