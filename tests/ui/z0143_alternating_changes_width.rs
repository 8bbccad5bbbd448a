//! What the last in turn gives is what the first takes.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[alternating]
    blocks: [(Linear<8, 16>, Linear<16, 9>); 2],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
