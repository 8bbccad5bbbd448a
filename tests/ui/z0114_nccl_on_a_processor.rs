//! NCCL carries bytes between GPUs, and this trains on the processor.
use zero_runtime::prelude::*;

#[zero(stage = 3, transport = Nccl)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    head: LmHead<8, 65>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
