//! The table has 65 rows, the head 66.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[tied(embed)]
    head: LmHead<8, 66>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
