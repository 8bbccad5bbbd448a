//! There is one rank along `replica`.
use zero_runtime::prelude::*;

#[zero(spec = "specs/within_node_of_one_rank.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
