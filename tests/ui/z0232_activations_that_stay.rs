//! Four units keep their activations on the device if two are fetched ahead: so would all of these.
use zero_runtime::prelude::*;

#[zero(spec = "specs/activations_that_stay.ron")]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    layers: [Linear<8, 8>; 3],
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
