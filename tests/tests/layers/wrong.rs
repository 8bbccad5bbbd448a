//! Layers with one mistake each: the message of the check names the layer, the tensor and the element.

use zero_core::device::{Kernels, Nonlinearity};
use zero_core::layer::cost::bytes;
use zero_core::view::{View, ViewMut};
use zero_runtime::author::{Backward, Context, Forward, Init, Loss, OrthogonalCost, Tensors, cost};
use zero_runtime::prelude::*;
use zero_runtime::testing::gradcheck;

use crate::Small;

/// A layer of `Features<3>` with a `gain` for each feature, y = gain x. One of the given items is wrong.
macro_rules! wrong {
    ($name:ident: $($item:tt)*) => {
        struct $name;

        impl Layer<Small, Features<3>> for $name {
            type Output = Features<3>;
            const PARAMS: usize = 3;
            const SAVED: usize = bytes::<f32>(1);
            const WORKSPACE: usize = bytes::<f32>(1);
            $($item)*
        }
    };
}

fn gain(out: &mut Tensors) {
    out.add("scale.gain", &[1, 3], Init::Ones);
}

fn forward(pass: Forward<Small, Features<3>>) {
    let gain = pass.params.as_slice();
    let rows = pass.y.into_slice().iter_mut().zip(pass.x.as_slice()).enumerate();
    rows.for_each(|(i, (y, x))| *y = gain[i % 3] * x);
}

fn grads(pass: &Backward<Small, Features<3>>) -> [f32; 3] {
    let mut grads = [0.0; 3];
    let pairs = pass.x.as_slice().iter().zip(pass.dy.as_slice()).enumerate();
    pairs.for_each(|(i, (x, dy))| grads[i % 3] += x * dy);
    grads
}

/// `dx`, `factor` times as large as it should be.
fn dx(pass: &mut Backward<Small, Features<3>>, factor: f32) {
    let gain = pass.params.as_slice();
    let rows = pass.dx.take().expect("an input that is differentiable").into_slice().iter_mut();
    rows.zip(pass.dy.as_slice()).enumerate().for_each(|(i, (dx, dy))| *dx = factor * gain[i % 3] * dy);
}

wrong! { ForgetsOutput:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, _: Forward<Small, Features<3>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { ForgetsRow:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) {
        pass.y.into_slice()[..7].fill(1.0);
    }
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { ReadsSaved:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) {
        let unwritten = pass.saved.take::<f32>(1).0.as_view().as_slice()[0];
        pass.y.into_slice().fill(unwritten);
    }
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { ForgetsDx:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(cx: &Context<Cpu>, pass: Backward<Small, Features<3>>) {
        let grads = grads(&pass);
        pass.grads.put(cx.device, grads.as_slice().into());
    }
}

wrong! { ForgetsGrads:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(_: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) { dx(&mut pass, 1.0) }
}

wrong! { WrongDx:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(cx: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) {
        let grads = grads(&pass);
        dx(&mut pass, 2.0);
        pass.grads.put(cx.device, grads.as_slice().into());
    }
}

wrong! { WrongGrads:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(cx: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) {
        let mut grads = grads(&pass);
        grads[2] *= 3.0;
        dx(&mut pass, 1.0);
        pass.grads.put(cx.device, grads.as_slice().into());
    }
}

wrong! { Overwrites:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(_: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) {
        let grads = grads(&pass);
        dx(&mut pass, 1.0);
        pass.grads.into_parts().0.into_slice().copy_from_slice(&grads);
    }
}

wrong! { Miscounts:
    fn tensors(out: &mut Tensors) { out.add("gain", &[2], Init::Ones) }
    fn forward(_: &Context<Cpu>, _: Forward<Small, Features<3>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { ForgetsMatrices:
    fn tensors(out: &mut Tensors) { out.hidden("gain", &[1], 3, Init::Ones) }
    fn forward(_: &Context<Cpu>, _: Forward<Small, Features<3>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { OthersMatrices:
    const MATRICES: OrthogonalCost = cost::matrix::<f32>([3, 3]);
    fn tensors(out: &mut Tensors) { out.hidden("gain", &[1], 3, Init::Ones) }
    fn forward(_: &Context<Cpu>, _: Forward<Small, Features<3>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

wrong! { ForgetsPlus:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn backward(cx: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) {
        let grads = grads(&pass);
        dx(&mut pass, 1.0);
        pass.grads.put(cx.device, grads.as_slice().into());
    }
    fn backward_plus(cx: &Context<Cpu>, pass: Backward<Small, Features<3>>, _: View<Cpu, f32>) { Self::backward(cx, pass) }
}

wrong! { ForgetsThen:
    fn tensors(out: &mut Tensors) { gain(out) }
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>>) { forward(pass) }
    fn forward_then(_: &Context<Cpu>, pass: Forward<Small, Features<3>>, _: zero_core::device::Then<Cpu, f32>) { forward(pass) }
    fn backward(cx: &Context<Cpu>, mut pass: Backward<Small, Features<3>>) {
        let grads = grads(&pass);
        dx(&mut pass, 1.0);
        pass.grads.put(cx.device, grads.as_slice().into());
    }
}

/// Its rows depend on the number of rows.
struct Counts;

impl Layer<Small, Features<3>> for Counts {
    type Output = Features<3>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    fn tensors(_: &mut Tensors) {}
    fn forward(cx: &Context<Cpu>, pass: Forward<Small, Features<3>>) {
        cx.device.fill(pass.y, cx.tokens() as f32);
    }
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

/// Adds to each token its predecessors, and ignores those of earlier calls.
struct Sums;

impl Layer<Small, Features<3>> for Sums {
    type Output = Features<3>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    fn tensors(_: &mut Tensors) {}
    fn forward(cx: &Context<Cpu>, pass: Forward<Small, Features<3>>) {
        let y = pass.y.into_slice();
        y.copy_from_slice(pass.x.as_slice());
        for i in (3..y.len()).filter(|i| i / 3 % cx.length > 0) {
            y[i] += y[i - 3];
        }
    }
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

/// The same with the sums that it needs in its cache, but it reads one place too far.
struct Misplaces;

impl Layer<Small, Features<3>> for Misplaces {
    type Output = Features<3>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    const CACHE: usize = bytes::<f32>(15);
    fn tensors(_: &mut Tensors) {}
    fn forward(cx: &Context<Cpu>, pass: Forward<Small, Features<3>>) {
        Sums::forward(cx, pass)
    }
    fn decode(cx: &Context<Cpu>, mut pass: Forward<Small, Features<3>>, cache: ViewMut<Cpu, u8>) {
        let sums = cache.take::<f32>(15).0.into_slice();
        Sums::forward(cx, Forward { y: pass.y.reborrow(), work: pass.work, ..pass });
        let (y, before) = (pass.y.into_slice(), cx.earlier[0].tokens);
        for (i, y) in y.iter_mut().enumerate().filter(|_| before > 0) {
            *y += sums[(before * 3) % 12 + i % 3];
        }
        sums[3 * before..][..y.len()].copy_from_slice(y);
    }
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

/// Declares itself a nonlinearity, but returns twice its result.
struct NotRelu;

impl Layer<Small, Features<3>> for NotRelu {
    type Output = Features<3>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    const ACTIVATION: Option<Nonlinearity> = Some(Nonlinearity::Relu);
    fn tensors(_: &mut Tensors) {}
    fn forward(cx: &Context<Cpu>, mut pass: Forward<Small, Features<3>>) {
        cx.device.activate(Nonlinearity::Relu, pass.x, pass.y.reborrow());
        cx.device.scale(pass.y, 2.0);
    }
    fn backward(cx: &Context<Cpu>, pass: Backward<Small, Features<3>>) {
        let mut dx = pass.dx.expect("an input that is differentiable");
        cx.device.activate_backward(Nonlinearity::Relu, pass.x, pass.dy, dx.reborrow());
        cx.device.scale(dx, 2.0);
    }
}

/// A head that declares that its backward writes the losses, but writes their gradients.
struct LeavesNoLosses;

impl Layer<Small, Features<3>> for LeavesNoLosses {
    type Output = Loss;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    const LOSSES_IN_BACKWARD: bool = true;
    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, pass: Forward<Small, Features<3>, Loss>) {
        let tokens = pass.y.into_slice().iter_mut().zip(pass.x.as_slice().chunks(3));
        tokens.for_each(|(y, x)| *y = x[1]);
    }
    fn backward(_: &Context<Cpu>, pass: Backward<Small, Features<3>, Loss>) {
        let dx = pass.dx.expect("an input that is differentiable").into_slice();
        let tokens = dx.chunks_mut(3).zip(pass.losses.into_slice());
        tokens.for_each(|(dx, loss)| dx.copy_from_slice(&[0.0, *loss, 0.0]));
    }
}

macro_rules! says {
    ($($name:ident, $layer:ty: $message:literal;)*) => {
        $(#[test] #[should_panic(expected = $message)] fn $name() { gradcheck::<Small, Features<3>, $layer>(); })*
    };
}

says! {
    an_output_that_is_forgotten, ForgetsOutput: "gradcheck of `ForgetsOutput`: `y` was never written";
    a_row_that_is_forgotten, ForgetsRow: "gradcheck of `ForgetsRow`: `y` [2, 1] was never written";
    a_read_before_a_write, ReadsSaved: "gradcheck of `ReadsSaved`: `y` [0, 0] comes from `saved`, which was not written before";
    dx_that_is_forgotten, ForgetsDx: "gradcheck of `ForgetsDx`: `dx` was never written";
    gradients_that_are_forgotten, ForgetsGrads: "gradcheck of `ForgetsGrads`: `grads` was never written";
    a_wrong_dx, WrongDx: "gradcheck of `WrongDx`: `dx` [0, 0]: expected ";
    wrong_gradients, WrongGrads: "gradcheck of `WrongGrads`: `grads` of `scale.gain` [0, 2]: expected ";
    gradients_that_are_not_added, Overwrites: "gradcheck of `Overwrites`: `grads` of `scale.gain` [0, 0]: expected ";
    parameters_without_a_name, Miscounts: "gradcheck of `Miscounts`: `tensors` names 2 parameters, but `PARAMS` is 3";
    matrices_that_are_not_counted, ForgetsMatrices: "but `MATRICES` is OrthogonalCost { room_bytes: 0, operations: 0, operations_max: 0 }";
    other_matrices, OthersMatrices: "gradcheck of `OthersMatrices`: the matrices of `tensors` take OrthogonalCost { room_bytes: 320, ";
    a_residual_that_is_forgotten, ForgetsPlus: "`dx` [0, 0]: expected ";
    what_follows_that_is_forgotten, ForgetsThen: "`y` [0, 0]: expected ";
    losses_that_are_not_left, LeavesNoLosses: "gradcheck of `LeavesNoLosses`: `y` [0, 0]: expected ";
    tokens_that_depend_on_others, Counts: "gradcheck of `Counts`: `y` [0, 0]: expected 10 of the first 4 tokens alone";
    a_mixture_that_is_not_decoded, Sums: "a layer in which tokens depend on others, or on their places, needs a `decode` of its own";
    a_cache_that_is_misread, Misplaces: "gradcheck of `Misplaces`: `y` [1, 0]: expected ";
    another_nonlinearity, NotRelu: "of the layer's `ACTIVATION`, found ";
    a_layer_in_a_chain, (Linear<3, 3>, ForgetsDx): "gradcheck of `(Linear<3, 3>, ForgetsDx)`: `grads` of `0.weight` [0, 0]";
}
