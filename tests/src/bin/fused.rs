//! A small model of text on two GPUs, with attention by cuDNN or, if its first argument is `own`, by zero's kernels.

use std::process::ExitCode;

use zero_tests::fused::{Fused, Own};
use zero_tests::small::main_of;

fn main() -> ExitCode {
    main_of::<Fused, Own>("own")
}
