//! Only stage 3 gathers for use.
use zero_runtime::prelude::*;

#[zero(stage = 2, gather = PerStep)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
