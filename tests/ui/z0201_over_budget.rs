//! Stage 0 holds everything on each rank, which takes more than the budget.
use zero_runtime::prelude::*;

#[zero(stage = 0, ranks = 8, length = 16, memory = MiB(80))]
struct Gpt {
    embed: Embedding<4096, 256, 512>,
    head: LmHead<512, 4096>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
