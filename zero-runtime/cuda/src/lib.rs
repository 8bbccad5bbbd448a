//! The CUDA device: one GPU for one rank. Ops go into queues that the device works through asynchronously; in a step
//! the host waits only for the report. Never computes on the host instead of the device: whatever the device cannot do
//! is an error.
//!
//! `library` finds CUDA's libraries on this machine, `context` opens a device, `memory` and `staging` are the memory
//! that it reads and writes; `nccl` carries bytes between devices that do not reach one another; `module` compiles
//! kernels, whose sources are in `kernels/`, and `launch` puts them into queues. `device` implements
//! [`zero_core::device::Device`], whose ops are in the other files: `product` has matrix products, which are a
//! library's, and each other file the kernels of one family.

mod activation;
mod attention;
mod capture;
mod context;
mod cross_entropy;
mod device;
mod elementwise;
mod embedding;
mod error;
mod gate;
mod graph;
mod grid;
mod handle;
mod launch;
mod library;
#[cfg(test)]
mod logits_tests;
mod marks;
mod memory;
mod module;
mod muon;
mod nccl;
mod nccl_types;
mod norm;
mod norm_heads;
mod optimizer;
mod ordinal;
mod outside;
mod product;
mod rehearsal;
mod rotary;
mod rows;
mod source;
mod squared_error;
mod staging;
mod sums;
mod variables;
mod workspace;

pub use error::CudaError;
pub use handle::Cuda;
pub use library::use_libraries;
pub use memory::CudaMemory;
pub use module::use_kernels;
pub use variables::{DEVICES_VARIABLE, FOLDERS_VARIABLE};
