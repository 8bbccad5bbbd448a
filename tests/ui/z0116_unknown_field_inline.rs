//! The name of a field is misspelled in the attribute.
use zero_runtime::prelude::*;

#[zero(stage = 1, recompute = Fields(["embde"]))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
