//! Fields have names.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt(Embedding<65, 256, 8>, LmHead<8, 65>);

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
