//! The smallest model of text whose training uses every part of the runtime. The tests of processes start it.

use zero_runtime::prelude::*;

#[zero(stage = 3, prefetch = 1, ranks = 3, sequences = 2, length = 16)]
struct Tiny {
    embed: Embedding<256, 16, 12>,
    mlp: Linear<12, 12>,
    norm: LayerNorm<12>,
    head: LmHead<12, 256>,
}

/// The ranks that `MISSING` lists look for their data at a path that does not exist.
fn main() -> std::process::ExitCode {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (missing, rank) = (variable("MISSING"), variable("RANK"));
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if missing.split(',').any(|missing| !rank.is_empty() && missing == rank) {
        let data = arguments.iter().position(|argument| argument == "--data").expect("a place of data");
        arguments[data + 1] = "/nowhere".into();
    }
    zero_runtime::main_from::<Tiny>(arguments)
}
