//! Device: what layers are computed on: the processor, and GPUs of CUDA. [`Device`] is their contract.

pub use zero_core::device::{Device, bf16};
pub use zero_cpu::Cpu;
#[cfg(feature = "cuda")]
pub use zero_cuda::Cuda;
