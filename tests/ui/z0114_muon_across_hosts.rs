//! Shards of a matrix are on two hosts, and no op waits until the sends that complete the matrix have finished.
use zero_runtime::prelude::*;

#[zero(stage = 2, ranks = 4, nodes = 2, transport = Cluster, optimizer = Muon)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    hidden: Linear<8, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
