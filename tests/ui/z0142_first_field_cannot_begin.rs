//! An activation takes any width, so nothing says what the model takes.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    act: Gelu,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
