//! Activations: elementwise nonlinearities of any width. Never have parameters.

use super::{Backward, Context, Features, Forward, Layer, Shape, Tensors};
use crate::device::{Device, Nonlinearity};

macro_rules! activation {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name;

        impl<S: Shape, const W: usize> Layer<S, Features<W>> for $name {
            type Output = Features<W>;
            const PARAMS: usize = 0;
            const SAVED: usize = 0;
            const WORKSPACE: usize = 0;

            fn tensors(_: &mut Tensors) {}

            fn forward(cx: &Context<S::Device>, pass: Forward<S::Device>) {
                cx.device.activate(Nonlinearity::$name, pass.x, pass.y);
            }

            fn backward(cx: &Context<S::Device>, pass: Backward<S::Device>) {
                if let Some(dx) = pass.dx {
                    cx.device.activate_backward(Nonlinearity::$name, pass.x, pass.dy, dx);
                }
            }
        }
    };
}

activation! {
    /// Gaussian error linear unit, in its tanh form.
    Gelu
}
activation! {
    /// Rectified linear unit.
    Relu
}
activation! {
    /// Sigmoid linear unit, also called swish.
    Silu
}
