//! Activations: elementwise nonlinearities of any width. Never have parameters.

use super::cost::{EXP, product};
use super::{Backward, Context, Features, Forward, Layer, Shape, Tensors};
use crate::device::{Kernels, Nonlinearity};

/// An activation as a type, for a gate to apply.
pub trait Nonlinear: 'static {
    /// The kind of the nonlinearity.
    const KIND: Nonlinearity;
    /// Operations for each element.
    const OPERATIONS: usize;
}

macro_rules! activation {
    // `operations` for each element.
    ($(#[$doc:meta])* $name:ident, operations: $operations:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Nonlinear for $name {
            const KIND: Nonlinearity = Nonlinearity::$name;
            const OPERATIONS: usize = $operations;
        }

        impl<S: Shape, const W: usize> Layer<S, Features<W>> for $name {
            type Output = Features<W>;
            const PARAMS: usize = 0;
            const SAVED: usize = 0;
            const WORKSPACE: usize = 0;
            const OPERATIONS: usize = product(&[S::TOKENS, W, <Self as Nonlinear>::OPERATIONS]);
            const ACTIVATION: Option<Nonlinearity> = Some(Nonlinearity::$name);

            fn tensors(_: &mut Tensors) {}

            fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
                cx.device.activate(Nonlinearity::$name, pass.x, pass.y);
            }

            fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
                if let Some(dx) = pass.dx {
                    cx.device.activate_backward(Nonlinearity::$name, pass.x, pass.dy, dx);
                }
            }
        }
    };
}

activation! {
    /// Gaussian error linear unit, in its tanh form.
    Gelu, operations: EXP + 8
}
activation! {
    /// Rectified linear unit.
    Relu, operations: 1
}
activation! {
    /// Sigmoid linear unit, also called swish.
    Silu, operations: EXP + 3
}
