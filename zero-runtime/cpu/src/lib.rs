//! The CPU device: single-threaded, deterministic kernels over row-major slices, and the code that shares their work
//! among threads. Never allocates in an op (except for the `gemm` crate's packing buffers), and owns only one kind of
//! buffer: the scratch of attention and of products, one for each thread.
//!
//! # What is in it
//!
//! - `device` is [`Cpu`], which calls each kernel once for each piece of its work. `parallel` shares pieces among the
//!   threads of a rank, and `simd` compiles loops for the widest vectors of the machine.
//! - `gemm`, `linear`, `few_rows` and `product` multiply matrices: f32 by a library, bf16 by tiles whose instructions
//!   are chosen at run time. `features` names the properties of a processor that decide bits.
//! - `attention`, `norm`, `norm_heads`, `rotary`, `embedding`, `gate`, `activation`, `cross_entropy` and
//!   `squared_error` are the ops of layers, a file for each family. `reduce`, `tree_sum`, `optimizer`, `muon` and
//!   `stored` are the ops at the end of a step, and `host_update` does the last of them for a GPU.
//! - `widths` lists the ops that this crate compiles in each width.
//!
//! # What is always true
//!
//! - An op is cut by rows, columns, elements or heads of its result, never within a sum; a product is cut only into
//!   blocks that are summed in the same order as the whole. So the number of threads changes no bit.
//! - Work fused into the pass of an op gives the same bits as in a pass of its own.
//! - Kernels widen inputs to f32, and round each result once, when they store it.
//!
//! # Where the next thing goes
//!
//! - A kernel: a file here, and in `device` the way in which it is cut into pieces. If it is generic in a width, it is
//!   never inlined and has a line in `widths`, so that no program compiles it again. It has a line in `all_ops` of
//!   `parallel/tests.rs`, a loop in `tests/naive/src/`, and a group in `tests/bench/benches/kernels.rs`.
//! - A processor's own products: a tile in `product`, with loads, products and stores of one block, which is compared
//!   with the plain tile wherever the processor has it, and its place in the table of `product/choice.rs`. Work in the same pass
//!   as a product belongs in `linear` and `parallel`.

mod activation;
mod attention;
mod convert;
mod cross_entropy;
mod device;
mod elementwise;
mod embedding;
mod features;
mod few_rows;
mod gate;
mod gemm;
mod host_update;
#[cfg(test)]
mod layer_tests;
mod linear;
mod math;
mod matrix;
mod matrix_mut;
mod muon;
mod norm;
mod norm_heads;
mod optimizer;
#[cfg(test)]
mod orthogonal_tests;
mod packing;
mod parallel;
mod processor;
mod product;
mod reduce;
mod rotary;
mod rows;
mod scraps;
mod simd;
mod squared_error;
pub mod stored;
mod strided;
#[cfg(test)]
mod testing;
mod tree_sum;
pub mod widths;

pub use activation::{activate, activate_backward};
pub use attention::{attention, attention_backward};
pub use convert::convert;
pub use cross_entropy::{cross_entropy, cross_entropy_backward};
pub use embedding::{embed, embed_backward};
pub use few_rows::{are_few, few_rows};
pub use gate::{gate, gate_backward};
pub use gemm::{matmul, matmul_with};
pub use host_update::{HostThreads, updated_bytes_per_s};
pub use linear::{ThenBlock, linear};
pub use matrix::StridedMatrix;
pub use matrix_mut::MatrixMut;
pub use norm::{
    layer_norm, layer_norm_backward, layer_norm_dparams, layer_norm_dx, rms_norm, rms_norm_backward, rms_norm_dgain,
    rms_norm_dx,
};
pub use norm_heads::{rms_norm_heads, rms_norm_heads_backward, rms_norm_heads_dgain, rms_norm_heads_dx};
pub use optimizer::{adamw, all_finite, sum, sum_squares};
pub use packing::inside_gemm;
pub use processor::Cpu;
pub use product::Bf16Products;
pub use reduce::reduce;
pub use rotary::{rotary_table, rotate};
pub use rows::{add, axpby, mul, scale, sum_columns, sum_rows};
pub use squared_error::{squared_error, squared_error_backward};
pub use strided::{StridedSlice, StridedSliceMut};
pub use tree_sum::tree_sum;
