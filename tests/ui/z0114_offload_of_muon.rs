//! Muon needs the momentum of whole matrices before any update.
use zero_runtime::prelude::*;

#[zero(spec = "specs/offload_of_muon.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
