//! Layer: the parts of a model. A layer is a type, never a value: it owns nothing, and each call receives everything that it
//! needs.
//!
//! A layer of your own implements [`Layer`] and is checked with [`crate::testing::gradcheck`]:
//!
//! ```
//! use zero_runtime::prelude::*;
//!
//! /// Multiplies every feature by one learned factor.
//! struct Scale<const W: usize>;
//!
//! impl<S: Shape<Device = Cpu, Compute = f32>, const W: usize> Layer<S, Features<W>> for Scale<W> {
//!     type Output = Features<W>;
//!     const PARAMS: usize = 1;
//!     const SAVED: usize = 0;
//!     const WORKSPACE: usize = 0;
//!
//!     fn tensors(out: &mut Tensors) {
//!         out.add("factor", &[1], Init::Ones);
//!     }
//!
//!     fn forward(_: &Context<Cpu>, pass: Forward<S, Features<W>>) {
//!         let factor = pass.params.as_slice()[0];
//!         for (y, x) in pass.y.into_slice().iter_mut().zip(pass.x.as_slice()) {
//!             *y = factor * x;
//!         }
//!     }
//!
//!     fn backward(cx: &Context<Cpu>, pass: Backward<S, Features<W>>) {
//!         let (x, dy) = (pass.x.as_slice(), pass.dy.as_slice());
//!         let dot: f32 = x.iter().zip(dy).map(|(x, dy)| x * dy).sum();
//!         pass.grads.put(cx.device, (&[dot][..]).into());
//!         if let Some(dx) = pass.dx {
//!             let factor = pass.params.as_slice()[0];
//!             for (dx, dy) in dx.into_slice().iter_mut().zip(dy) {
//!                 *dx = factor * dy;
//!             }
//!         }
//!     }
//! }
//!
//! struct Small;
//! impl Shape for Small {
//!     type Device = Cpu;
//!     type Compute = f32;
//!     const SEQUENCES: usize = 2;
//!     const LENGTH: usize = 3;
//! }
//! zero_runtime::testing::gradcheck::<Small, Features<5>, Scale<5>>();
//! ```
//!
//! This layer reads elements as f32 on the processor, and says so in its bounds. A layer that only calls operations of
//! [`Device`](crate::device::Device) needs no bounds, and computes on any device and in any width that a plan asks for.
//!
//! The heads of an [`Attention`] are a type, too:
//!
//! ```
//! use zero_runtime::prelude::*;
//!
//! /// Eight heads of 16 features, of which pairs share a head of keys and values.
//! struct Shared;
//! impl Heads for Shared {
//!     const HEADS: usize = 8;
//!     const KEY_HEADS: usize = 4;
//!     const HEAD_DIM: usize = 16;
//!     const ROTARY: Option<Rotary> = Some(Rotary { base: 10_000.0, scaling: Scaling::None });
//! }
//!
//! type Mixer = (RmsNorm<96>, Attention<96, Shared>);
//! ```
//!
//! A model with an [`MseHead`], which learns a sine, and its data:
//!
//! ```
//! use zero_runtime::data::{Dataset, Draw};
//! use zero_runtime::prelude::*;
//! use zero_runtime::random::uniform;
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

pub use zero_core::layer::*;
