//! A small model of text whose ranks are on two hosts.

use zero_runtime::prelude::*;

#[zero(spec = "specs/hosts.ron")]
struct Hosts {
    embed: Embedding<256, 16, 12>,
    mlp: Linear<12, 12>,
    norm: LayerNorm<12>,
    head: LmHead<12, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Hosts>()
}
