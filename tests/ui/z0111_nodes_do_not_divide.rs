//! 4 ranks do not lie equally on 3 nodes.
use zero_runtime::prelude::*;

#[zero(stage = 1, ranks = 4, nodes = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
