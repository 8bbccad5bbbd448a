//! Data: what a run trains on: text, token files, or a dataset of one's own, whose numbers are drawn from a seed.
//!
//! A model that learns a sine, and its data:
//!
//! ```
//! use zero_runtime::data::{Dataset, Draw, uniform};
//! use zero_runtime::prelude::*;
//!
//! #[zero(stage = 2, ranks = 2, sequences = 64, length = 1)]
//! struct Sine {
//!     hidden: (Linear<1, 32>, Silu),
//!     out: Linear<32, 1>,
//!     head: MseHead<1>,
//! }
//!
//! struct Points;
//!
//! impl Dataset for Points {
//!     type Input = Features<1>;
//!     type Target = Features<1>;
//!
//!     fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [f32]) {
//!         for (i, (x, target)) in (0..).zip(input.iter_mut().zip(targets)) {
//!             *x = 6.0 * uniform(draw.hash(), i) as f32 - 3.0;
//!             *target = x.sin();
//!         }
//!     }
//!
//!     fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [f32]) {
//!         self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
//!     }
//!
//!     fn held_out_count(&self) -> usize {
//!         64
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     # if true { return std::process::ExitCode::SUCCESS }
//!     zero_runtime::main_with::<Sine>(Points)
//! }
//! ```

pub use zero_core::random::{mix, normal, uniform};
pub use zero_files::data::{DataAs, DataError, Dataset, Draw, Ids, Sequences, Text, Tokenizer};
