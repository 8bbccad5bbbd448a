//! A model has a first and a last field.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
