//! Three entries are one too many for two pipeline stages.
use zero_runtime::prelude::*;

#[zero(spec = "specs/split_of_other_length.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
