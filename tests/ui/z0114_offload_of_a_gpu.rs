//! Nothing carries pieces between a disk and the memory of a GPU yet.
use zero_runtime::prelude::*;

#[zero(spec = "specs/offload_of_a_gpu.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
