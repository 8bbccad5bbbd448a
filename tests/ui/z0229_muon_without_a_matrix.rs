//! An embedding and a head are none of a hidden layer.
use zero_runtime::prelude::*;

#[zero(stage = 1, optimizer = Muon)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
