//! Compiled ops: the ops of each width, compiled with this crate. A program that trains is generic in its model and
//! would compile them once more; but a generic function that is never inlined is taken from the crate that has it
//! already. Never computes.

use super::Cpu;
use zero_core::device::{Element, Kernels, bf16};

/// Addresses of the ops of one width, by which a program can check that it uses the same ones.
pub fn compiled_ops<E: Element>() -> [*const (); 29] {
    [
        Cpu::add::<E> as *const (),
        Cpu::mul::<E> as *const (),
        Cpu::scale::<E> as *const (),
        Cpu::axpby::<E> as *const (),
        Cpu::linear::<E> as *const (),
        Cpu::sum_rows::<E> as *const (),
        Cpu::activate::<E> as *const (),
        Cpu::activate_backward::<E> as *const (),
        Cpu::layer_norm::<E> as *const (),
        Cpu::layer_norm_backward::<E> as *const (),
        Cpu::rms_norm::<E> as *const (),
        Cpu::rms_norm_backward::<E> as *const (),
        Cpu::rms_norm_heads::<E> as *const (),
        Cpu::rms_norm_heads_backward::<E> as *const (),
        Cpu::rotate::<E> as *const (),
        Cpu::gate::<E> as *const (),
        Cpu::gate_backward::<E> as *const (),
        Cpu::attention::<E> as *const (),
        Cpu::attention_backward::<E> as *const (),
        Cpu::embed::<E> as *const (),
        Cpu::embed_backward::<E> as *const (),
        Cpu::cross_entropy::<E> as *const (),
        Cpu::cross_entropy_backward::<E> as *const (),
        Cpu::squared_error::<E> as *const (),
        Cpu::squared_error_backward::<E> as *const (),
        Cpu::normalize::<E> as *const (),
        Cpu::step_along::<E> as *const (),
        Cpu::matmul::<E, E> as *const (),
        Cpu::matmul::<f32, E> as *const (),
    ]
}

/// Addresses for all widths. Naming the ops makes this crate compile them; no run calls this function.
pub fn all_compiled_ops() -> [[*const (); 29]; 2] {
    [compiled_ops::<f32>(), compiled_ops::<bf16>()]
}
