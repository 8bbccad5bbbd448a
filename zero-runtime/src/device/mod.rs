//! Device: what layers are computed on: the processor, and GPUs of CUDA. [`Device`] is their contract.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;

pub use zero_core::device::*;

pub use cpu::device::Cpu;
#[cfg(feature = "cuda")]
pub use cuda::handle::Cuda;
