//! 2^40 x 2^30 parameters are more than 64 bits count.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, { 1 << 40 }>,
    middle: Linear<{ 1 << 40 }, { 1 << 30 }>,
    head: LmHead<{ 1 << 30 }, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
