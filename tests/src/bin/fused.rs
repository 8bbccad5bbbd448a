//! A small model of text on two GPUs, whose attention cuDNN does.

use std::process::ExitCode;

use zero_tests::fused::Fused;

fn main() -> ExitCode {
    zero_runtime::main::<Fused>()
}
