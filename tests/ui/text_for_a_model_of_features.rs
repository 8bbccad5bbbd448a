//! `main` trains on text, but the first field takes features: that is for `main_with` and data of its own.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    middle: Linear<8, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
