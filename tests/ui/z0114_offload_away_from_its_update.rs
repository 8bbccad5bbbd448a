//! The host updates what lies in its memory, and sums on a disk do not.
use zero_runtime::prelude::*;

#[zero(spec = "specs/offload_away_from_its_update.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
