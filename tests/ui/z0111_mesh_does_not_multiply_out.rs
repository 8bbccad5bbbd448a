//! 2 nodes x 4 ranks are 8 ranks, but the axes make 4.
use zero_runtime::prelude::*;

#[zero(spec = "specs/mesh_of_other_size.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
