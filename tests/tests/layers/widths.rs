//! Widths: a program uses the kernels that the runtime has compiled. Never computes.

use zero_cpu::widths::{kernels_of_width, kernels_of_widths};
use zero_runtime::device::bf16;

/// A kernel that was compiled again here would have another address.
#[test]
fn no_program_compiles_a_kernel_again() {
    let all = kernels_of_widths();
    assert!(all[0].len() > 25, "kernels are declared in another way: {}", all[0].len());
    assert_eq!(all, [kernels_of_width::<f32>(), kernels_of_width::<bf16>()]);
}
