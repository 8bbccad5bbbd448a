//! Device: what layers are computed on: the processor, and GPUs of CUDA. [`Device`] is their contract.

pub use zero_core::device::*;
pub use zero_cpu::{self as cpu, Cpu};
#[cfg(feature = "cuda")]
pub use zero_cuda::{self as cuda, Cuda};
