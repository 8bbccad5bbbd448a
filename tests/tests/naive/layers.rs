//! Each layer of the library, forward and backward.

use std::marker::PhantomData;

use zero_runtime::device::{Cpu, Device, Write};
use zero_runtime::layer::Grads;
use zero_runtime::prelude::*;
use zero_runtime::testing::Sample;
use zero_tests::naive::Naive;
use zero_tests::tiny::{DIM, TinyBlock};

use super::{Written, assert_alike, noise, of, values};

/// Two sequences of five tokens.
struct Small<D>(PhantomData<D>);

impl<D: Device> Shape for Small<D> {
    type Device = D;
    const SEQUENCES: usize = 2;
    const LENGTH: usize = 5;
}

const TOKENS: usize = 10;

/// What a layer makes of parameters, inputs and targets that are the same on every device.
fn run<D: Device, X: Sample, T: Sample, L: Layer<Small<D>, X>>(device: &D) -> Written {
    let params = of(device, &noise(L::PARAMS, 1));
    let (x, targets) = (of(device, &X::cells(2, TOKENS)), of(device, &T::cells(3, TOKENS)));
    let y_len = TOKENS * L::Output::WIDTH;
    let dy = of(device, &noise(y_len, 4));
    let unwritten = |len| of(device, &vec![f32::NAN; len]);
    let [mut y, mut saved, mut work] = [y_len, L::SAVED, L::WORKSPACE].map(unwritten);
    let [mut grads, mut dx] = [L::PARAMS, TOKENS * X::WIDTH].map(unwritten);
    let context = Context { device, sequences: 2, length: 5, targets: targets.view() };
    let pass =
        Forward { params: params.view(), x: x.view(), y: y.view_mut(), saved: saved.view_mut(), work: work.view_mut() };
    L::forward(&context, pass);
    let pass = Backward {
        params: params.view(),
        grads: Grads::new(grads.view_mut(), Write::Set),
        x: x.view(),
        saved: saved.view(),
        dy: dy.view(),
        dx: X::DIFFERENTIABLE.then(|| dx.view_mut()),
        work: work.view_mut(),
    };
    L::backward(&context, pass);
    let mut written = vec![("y", values(device, &y)), ("grads", values(device, &grads))];
    written.extend(X::DIFFERENTIABLE.then(|| ("dx", values(device, &dx))));
    written
}

fn check<X: Sample, T: Sample, L: Layer<Small<Cpu>, X> + Layer<Small<Naive>, X>>() {
    assert_alike(&run::<Naive, X, T, L>(&Naive), &run::<Cpu, X, T, L>(&Cpu::default()));
}

macro_rules! layers {
    ($($name:ident: $input:ty, $target:ty, $layer:ty;)*) => {
        $(#[test] fn $name() { check::<$input, $target, $layer>(); })*
    };
}

layers! {
    embedding: Tokens, Tokens, Embedding<3, 5, 7>;
    linear: Features<3>, Tokens, Linear<3, 17>;
    layer_norm: Features<7>, Tokens, LayerNorm<7>;
    rms_norm: Features<7>, Tokens, RmsNorm<7>;
    gelu: Features<13>, Tokens, Gelu;
    relu: Features<13>, Tokens, Relu;
    silu: Features<13>, Tokens, Silu;
    attention: Features<6>, Tokens, CausalSelfAttention<6, 2>;
    residual: Features<5>, Tokens, Residual<(RmsNorm<5>, Linear<5, 5>)>;
    language_head: Features<5>, Tokens, LmHead<5, 11>;
    error_head: Features<5>, Features<5>, MseHead<5>;
    block: Features<DIM>, Tokens, TinyBlock;
}
