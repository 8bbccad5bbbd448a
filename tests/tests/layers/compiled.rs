//! Compiled: a program uses the kernels that the runtime has compiled. Never computes.

use zero_runtime::device::bf16;
use zero_runtime::device::cpu::compiled::{all_compiled_ops, compiled_ops};

/// A kernel that was compiled here once more would have another address.
#[test]
fn no_program_compiles_a_kernel_again() {
    assert_eq!(all_compiled_ops(), [compiled_ops::<f32>(), compiled_ops::<bf16>()]);
}
