//! A user's own layer that is more than a chain, written only with operations of the device: as fast as the library's layers, on as
//! many threads, on any device.

use zero_core::device::{Element, Kernels, Matrix, Nonlinearity, Write};
use zero_core::layer::cost::{bytes, product, sum};
use zero_core::view::{View, ViewMut};
use zero_runtime::author::{Backward, Context, Device, Forward, Init, Shape, Tensors};
use zero_runtime::prelude::*;

/// (tokens, W) to (tokens, W): `down` (silu(`gate` x) * `up` x), elementwise; Shazeer, "GLU Variants Improve Transformer",
/// 2020. All three are without bias; `H` is the width between.
pub struct SwiGlu<const W: usize, const H: usize>;

/// `y` (rows, output) := `x` (rows, input) times the transposed `weight` (output, input).
fn apply<D: Device, E: Element>(
    device: &D,
    y: ViewMut<D, E>,
    x: View<D, E>,
    weight: View<D, E>,
    [input, output]: [usize; 2],
) {
    let rows = y.len() / output;
    device.matmul(y, Matrix::new(x, rows, input), Matrix::new(weight, output, input).transposed(), Write::Set);
}

impl<S: Shape, const W: usize, const H: usize> Layer<S, Features<W>> for SwiGlu<W, H> {
    type Output = Features<W>;
    const PARAMS: usize = 3 * W * H;
    /// `gate` x and `up` x, each (tokens, H).
    const SAVED: usize = sum(&[bytes::<S::Compute>(product(&[S::TOKENS, H])); 2]);
    /// Two more buffers of this size.
    const WORKSPACE: usize = sum(&[bytes::<S::Compute>(product(&[S::TOKENS, H])); 2]);

    fn tensors(out: &mut Tensors) {
        out.add("gate", &[H, W], Init::Normal(0.02));
        out.add("up", &[H, W], Init::Normal(0.02));
        out.add("down", &[W, H], Init::Normal(0.02));
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
        let (device, len) = (cx.device, cx.tokens() * H);
        let (gate, rest) = pass.params.split_at(W * H);
        let (up, down) = rest.split_at(W * H);
        let (mut gated, rest) = pass.saved.take::<S::Compute>(len);
        let mut raised = rest.take::<S::Compute>(len).0;
        let mut hidden = pass.work.take::<S::Compute>(len).0;
        apply(device, gated.reborrow(), pass.x, gate, [W, H]);
        apply(device, raised.reborrow(), pass.x, up, [W, H]);
        device.activate(Nonlinearity::Silu, gated.as_view(), hidden.reborrow());
        device.mul(hidden.reborrow(), raised.as_view());
        apply(device, pass.y, hidden.as_view(), down, [H, W]);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
        let (device, tokens) = (cx.device, cx.tokens());
        let len = tokens * H;
        let (gate, rest) = pass.params.split_at(W * H);
        let (up, down) = rest.split_at(W * H);
        let (gated, rest) = pass.saved.take::<S::Compute>(len);
        let raised = rest.take::<S::Compute>(len).0;
        let (mut hidden, rest) = pass.work.take::<S::Compute>(len);
        let mut dhidden = rest.take::<S::Compute>(len).0;
        let (grads, write) = pass.grads.into_parts();
        let (dgate, rest) = grads.split_at(W * H);
        let (dup, ddown) = rest.split_at(W * H);
        let (x, dy) = (|| Matrix::new(pass.x, tokens, W), || Matrix::new(pass.dy, tokens, W));
        device.activate(Nonlinearity::Silu, gated, hidden.reborrow());
        device.mul(hidden.reborrow(), raised);
        device.matmul(ddown, dy().transposed(), Matrix::new(hidden.as_view(), tokens, H), write);
        // The gradient by `up` x: the gradient of the hidden features, times silu(`gate` x).
        device.matmul(dhidden.reborrow(), dy(), Matrix::new(down, W, H), Write::Set);
        device.activate(Nonlinearity::Silu, gated, hidden.reborrow());
        device.mul(hidden.reborrow(), dhidden.as_view());
        let draised = || Matrix::new(hidden.as_view(), tokens, H);
        device.matmul(dup, draised().transposed(), x(), write);
        let mut dx = pass.dx;
        if let Some(dx) = &mut dx {
            device.matmul(dx.reborrow(), draised(), Matrix::new(up, H, W), Write::Set);
        }
        // The gradient by `gate` x: the gradient of the hidden features, times `up` x and the slope of silu.
        device.mul(dhidden.reborrow(), raised);
        device.activate_backward(Nonlinearity::Silu, gated, dhidden.as_view(), hidden.reborrow());
        let dgated = || Matrix::new(hidden.as_view(), tokens, H);
        device.matmul(dgate, dgated().transposed(), x(), write);
        if let Some(dx) = dx {
            device.matmul(dx, dgated(), Matrix::new(gate, H, W), Write::Add);
        }
    }
}
