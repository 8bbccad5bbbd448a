//! More units than the comparison of tables allows.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    hidden: [Linear<8, 8>; 1 << 40],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
