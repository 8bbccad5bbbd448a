//! Author: what the file of a new layer needs: the contract of layers, the views that a layer computes on, and the operations of
//! a device.
//!
//! A layer of your own implements [`Layer`] and is checked with [`gradcheck`](crate::testing::gradcheck):
//!
//! ```
//! use zero_runtime::author::*;
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
//! This layer reads elements as f32 on the processor, and says so in its bounds. A layer that only calls operations of [`Device`]
//! and its [`Kernels`] needs no bounds, and computes on any device and in any width that a plan asks for.

pub use zero_core::device::{
    AttentionShape, Device, Element, Kernels, Matrix, Nonlinearity, Strided, StridedMut, Then, Write, bf16,
};
pub use zero_core::layer::{
    Activation, Backward, Context, ElementOf, Entry, Features, Forward, Grads, Head, HiddenMatrix, Init, Layer, Loss,
    OrthogonalCost, PublishedPart, Shape, SharesWith, Tensor, TensorNames, Tensors, TokenWords, Tokens, Word, WordKind,
    activation_bytes, cost,
};
pub use zero_core::model::{Model, published};
pub use zero_core::view::{View, ViewMut};
pub use zero_cpu::Cpu;
