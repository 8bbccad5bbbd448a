//! A small model of text on two GPUs, whose attention cuDNN does, or, where its first argument is `own`, zero's own kernels.

use std::process::ExitCode;

use zero_tests::fused::{Fused, Own};
use zero_tests::small::main_of;

fn main() -> ExitCode {
    main_of::<Fused, Own>("own")
}
