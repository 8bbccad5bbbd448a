//! An activation takes any width, so nothing says what the model takes.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    act: Gelu,
    head: LmHead<8, 65>,
}

// Not `zero_runtime::main::<Gpt>()`, which would be told the same.
fn main() {}
