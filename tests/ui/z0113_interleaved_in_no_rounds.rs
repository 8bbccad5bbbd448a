//! 6 micro-batches are not a multiple of 4.
use zero_runtime::prelude::*;

#[zero(spec = "specs/interleaved_in_no_rounds.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
