//! Each layer of the library, forward and backward.

use std::marker::PhantomData;

use zero_plan::config::Width;
use zero_runtime::device::{Buffer, Cpu, Device, Element, Write, bf16};
use zero_runtime::layer::{ElementOf, Grads};
use zero_runtime::prelude::*;
use zero_runtime::testing::Sample;
use zero_tests::naive::Naive;
use zero_tests::tiny::{DIM, TinyBlock};

use super::{Written, assert_alike, noise, numbers, of, stored, values};

/// Two sequences of five tokens.
struct Small<D, E>(PhantomData<(D, E)>);

impl<D: Device, E: Element> Shape for Small<D, E> {
    type Device = D;
    type Compute = E;
    const SEQUENCES: usize = 2;
    const LENGTH: usize = 5;
}

const TOKENS: usize = 10;

/// Inputs as a layer takes them: features rounded, ids as they are.
fn entering<D: Device, E: Element, X: Sample>(device: &D) -> Buffer<D, u8> {
    let cells = X::cells(2, TOKENS);
    if !X::DIFFERENTIABLE {
        return of(device, bytemuck::cast_slice(&cells));
    }
    let features: Vec<E> = cells.into_iter().map(E::narrow).collect();
    of(device, bytemuck::cast_slice(&features))
}

/// What a layer makes of parameters, inputs and targets that are the same on every device.
fn run<D: Device, E: Element, X: Sample, T: Sample, L: Layer<Small<D, E>, X>>(device: &D) -> Written {
    // Small, as otherwise scores of attention are so large that their last bits decide.
    let params = stored(device, &noise(L::PARAMS, 1).iter().map(|x| x / 4.0).collect::<Vec<_>>());
    let (x, targets) = (entering::<D, E, X>(device), of(device, &T::cells(3, TOKENS)));
    // A loss is f32 whatever is computed in.
    let is_loss = size_of::<ElementOf<Small<D, E>, L::Output>>() != size_of::<E>();
    let y_len = TOKENS * L::Output::WIDTH;
    let unwritten = |bytes: usize| of(device, &vec![u8::MAX; bytes]);
    let mut y = unwritten(y_len * size_of::<ElementOf<Small<D, E>, L::Output>>());
    let [mut saved, mut work] = [L::SAVED, L::WORKSPACE].map(unwritten);
    let (mut grads, mut dx) = (
        stored::<D, f32>(device, &vec![f32::NAN; L::PARAMS]),
        stored::<D, E>(device, &[f32::NAN].repeat(TOKENS * X::WIDTH)),
    );
    let context = Context { device, sequences: 2, length: 5, targets: targets.view().cast() };
    let (params, input) = (params.view(), x.view().cast());
    let pass = Forward { params, x: input, y: y.view_mut().cast(), saved: saved.view_mut(), work: work.view_mut() };
    L::forward(&context, pass);
    let (wide_dy, narrow_dy) = (stored::<D, f32>(device, &noise(y_len, 4)), stored::<D, E>(device, &noise(y_len, 4)));
    let pass = Backward {
        params,
        grads: Grads::new(grads.view_mut(), Write::Set),
        x: input,
        saved: saved.view(),
        dy: if is_loss { wide_dy.view().cast() } else { narrow_dy.view().cast() },
        dx: X::DIFFERENTIABLE.then(|| dx.view_mut().cast()),
        work: work.view_mut(),
    };
    L::backward(&context, pass);
    let y = values(device, &y);
    let y = if is_loss { widened::<f32>(&y) } else { widened::<E>(&y) };
    let mut written = vec![("y", y), ("grads", numbers(device, &grads))];
    written.extend(X::DIFFERENTIABLE.then(|| ("dx", numbers(device, &dx))));
    written
}

fn widened<E: Element>(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(size_of::<E>()).map(|x| bytemuck::pod_read_unaligned::<E>(x).widen()).collect()
}

fn check<X: Sample, T: Sample, L>()
where
    L: Layer<Small<Cpu, f32>, X>
        + Layer<Small<Naive, f32>, X>
        + Layer<Small<Cpu, bf16>, X>
        + Layer<Small<Naive, bf16>, X>,
{
    let cpu = Cpu::default();
    assert_alike(Width::F32, &run::<Naive, f32, X, T, L>(&Naive), &run::<Cpu, f32, X, T, L>(&cpu));
    assert_alike(Width::BF16, &run::<Naive, bf16, X, T, L>(&Naive), &run::<Cpu, bf16, X, T, L>(&cpu));
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
