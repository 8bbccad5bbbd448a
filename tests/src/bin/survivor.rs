//! A model of text that is small enough to be ended and to come back many times. `KIND` says how: ranks that are threads and
//! write by threads of their own (`threads`), the same without a copy (`waiting`), or processes.

use std::process::ExitCode;

use zero_runtime::prelude::*;

macro_rules! survivor {
    ($name:ident, $($option:tt)*) => {
        #[zero(sequences = 1, length = 4, $($option)*)]
        struct $name {
            embed: Embedding<256, 4, 4>,
            norm: LayerNorm<4>,
            head: LmHead<4, 256>,
        }
    };
}

survivor!(Threads, stage = 1, ranks = 2, snapshot = true, transport = Local);
survivor!(Waiting, stage = 1, ranks = 2, transport = Local);
survivor!(Processes, stage = 3, ranks = 3, snapshot = true);

fn main() -> ExitCode {
    match std::env::var("KIND").as_deref() {
        Ok("threads") => zero_runtime::main::<Threads>(),
        Ok("waiting") => zero_runtime::main::<Waiting>(),
        _ => zero_runtime::main::<Processes>(),
    }
}
