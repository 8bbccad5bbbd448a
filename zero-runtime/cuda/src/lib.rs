//! The CUDA device: one GPU for one rank. Ops go into queues that the device processes asynchronously; in a step the
//! host waits only for the report. Never computes on the host instead of the device: if the device cannot do something,
//! that is an error.
//!
//! # What is in it
//!
//! `library` finds CUDA's libraries on this machine, `context` opens a device, `memory` is the memory that it reads and
//! writes, and `host_memory` keeps states for it. `handle` is the device of a rank with all its resources there: `module`
//! compiles kernels, whose sources are in `kernels/`, and `launch` puts them into queues; `staging` is memory between
//! host and device; `ways` has the ways to compute matrix products; `nccl` carries bytes between devices that do not
//! reach one another; `capture` and `graph` make one launch of a step. The files of kernels build on the handle, one for each family, and `product`,
//! whose kernels are a library's. `device` implements [`zero_core::device::Device`] with all of them. `rehearsal`
//! prepares the needs of a step before the first step, and `figures` measures the speeds of devices.
//!
//! # What is always true
//!
//! - A step is one launch, or runs op by op, to the same bits. The first step runs op by op, which compiles kernels.
//!   The next step is captured, once for each of the two places through which ranks exchange numbers
//!   ([`zero_core::transport::Transport::phase`]), or once if numbers are carried. From then on calls are compared with
//!   the captured calls and not made. A call that differs is an error (Z0449). Profiled steps, evaluations and
//!   predictions are never captured, and `--eager` captures nothing.
//! - Ops are captured in the order of the plan's table, because in another order some wait would never end.
//! - A graph repeats the captured exchanges: each exchange by NCCL is a call whose group, peers, addresses and lengths
//!   are compared. Its communicator settles before the next call. Ranks launch the same graphs in the same order. When
//!   a rank leaves, it first tells all communicators to end, then drops the graphs, and only then waits for the
//!   communicators: NCCL keeps a communicator while a graph has work of it.
//! - Each group and stream has a communicator, and so does each kind of parcel between two pipeline stages.
//! - Elementwise results and fixed trees have the processor's bits. Other sums have an order of their own, and use no
//!   atomics.
//!
//! # Where the next thing goes
//!
//! A kernel is a template in `kernels/`, plain CUDA C++ without the toolkit's headers. It has a line in `source`; its
//! grid, constants and arguments are in the file of its family, to which `device` forwards.
//!
//! - Sizes that a plan fixes are constants of the template, so that the compiler knows bounds and divisors: widths,
//!   strides, epsilons (as the bits of a float), vocabularies, the shape of attention, and how many threads and blocks
//!   share a row. Values that vary under one plan are arguments: addresses, rows, tokens, positions, lengths of
//!   stretches, whether a gradient is set or added to, and the numbers of a step.
//! - It is compiled without contraction, calls `fmaf` where it needs one, and takes `exponential` and similar functions
//!   from `math.cuh`.
//! - Kernels are tested on the host: `tests/pretend/` compiles the same source with the system's compiler, and
//!   `tests/tests/cuda/` compares each op with the processor. `tests/nvrtc/check.sh` compiles all kernels with NVIDIA's
//!   compiler, and refuses a kernel that spills registers.

mod activation;
mod attention;
mod capture;
mod context;
mod cross_entropy;
mod device;
mod elementwise;
mod embedding;
mod error;
pub mod figures;
mod gate;
mod grid;
mod handle;
mod host_memory;
mod lengths;
mod library;
#[cfg(test)]
mod logits_tests;
mod marks;
mod memory;
mod muon;
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
mod sums;
mod variables;

pub use error::CudaError;
pub use handle::Cuda;
pub use handle::module::use_kernels;
pub use library::use_libraries;
pub use memory::CudaMemory;
pub use variables::{DEVICES_VARIABLE, FOLDERS_VARIABLE};
