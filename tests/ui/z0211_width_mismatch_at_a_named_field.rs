//! A field's attributes for its tensors add no further error.
use zero_runtime::prelude::*;

#[zero(stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[weights("model.norm")]
    #[init(0.02)]
    norm: LayerNorm<9>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
