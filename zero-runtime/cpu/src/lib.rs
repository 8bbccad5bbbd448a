//! The CPU device: single-threaded, deterministic kernels over row-major slices, and the code that shares their work
//! among threads. Never allocates in an op (except for the `gemm` crate's packing buffers), and owns no buffer but the
//! scratch of attention and of products, one for each thread.

mod activation;
mod attention;
mod columns;
pub mod compiled;
mod convert;
mod cross_entropy;
mod device;
mod elementwise;
mod embedding;
mod features;
mod few_rows;
mod gate;
mod gemm;
#[cfg(test)]
mod layer_tests;
mod linear;
mod math;
mod muon;
mod norm;
mod norm_heads;
mod optimizer;
#[cfg(test)]
mod orthogonal_tests;
mod packing;
mod parallel;
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

pub use activation::{activate, activate_backward};
pub use attention::{attention, attention_backward};
pub use columns::ColumnsMut;
pub use convert::convert;
pub use cross_entropy::{cross_entropy, cross_entropy_backward};
pub use device::Cpu;
pub use embedding::{embed, embed_backward};
pub use few_rows::{are_few, few_rows};
pub use gate::{gate, gate_backward};
pub use gemm::{MatrixMut, StridedMatrix, matmul};
pub use linear::{SliceThen, linear};
pub use norm::{
    layer_norm, layer_norm_backward, layer_norm_dparams, layer_norm_dx, rms_norm, rms_norm_backward, rms_norm_dgain,
    rms_norm_dx,
};
pub use norm_heads::{rms_norm_heads, rms_norm_heads_backward, rms_norm_heads_dgain, rms_norm_heads_dx};
pub use optimizer::{adamw, all_finite, sum, sum_squares};
pub use packing::inside_gemm;
pub use product::instructions;
pub use reduce::reduce;
pub use rotary::{rotary_table, rotate};
pub use rows::{add, axpby, mul, scale, sum_columns, sum_rows};
pub use squared_error::{squared_error, squared_error_backward};
pub use strided::{StridedSlice, StridedSliceMut};
pub use tree_sum::tree_sum;
