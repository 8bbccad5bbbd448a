//! All states are on the device, so no pieces of them travel.
use zero_runtime::prelude::*;

#[zero(spec = "specs/piece_without_offload.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
