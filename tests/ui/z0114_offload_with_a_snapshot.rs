//! The copy for a checkpoint would need the memory that offload saves.
use zero_runtime::prelude::*;

#[zero(spec = "specs/offload_with_a_snapshot.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
