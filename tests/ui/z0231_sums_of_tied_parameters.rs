//! The sums of the head's gradients are added to those of the embedding, which are in a file by then.
use zero_runtime::prelude::*;

#[zero(spec = "specs/sums_of_tied_parameters.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layer: Linear<8, 8>,
    #[tied(embed)]
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
