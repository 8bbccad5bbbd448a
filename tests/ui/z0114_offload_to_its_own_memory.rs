//! The memory of the host is the one that a processor computes in.
use zero_runtime::prelude::*;

#[zero(spec = "specs/offload_to_its_own_memory.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
