//! Two moments of every parameter need more of the disk than the budget allows.
use zero_runtime::prelude::*;

#[zero(spec = "specs/over_the_disks_budget.ron")]
struct Gpt {
    embed: Embedding<4096, 256, 512>,
    head: LmHead<512, 4096>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
