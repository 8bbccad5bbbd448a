//! A plan needs sizes.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt<const W: usize> {
    embed: Embedding<65, 256, W>,
    head: LmHead<W, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt<8>>()
}
