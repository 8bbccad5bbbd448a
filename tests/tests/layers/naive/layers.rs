//! Each layer of the library, forward and backward.

use std::marker::PhantomData;

use zero_core::device::{Device, Element, bf16};
use zero_cpu::Cpu;
use zero_plan::Width;
use zero_runtime::author::Shape;
use zero_runtime::layers::Residual;
use zero_runtime::prelude::*;
use zero_runtime::testing::Sample;
use zero_tests::buffers::run;
use zero_tests::heads::*;
use zero_tests::naive::Naive;
use zero_tests::tiny::{DIM, TinyBlock};

use super::assert_alike;

/// Two sequences of five tokens.
struct Small<D, E>(PhantomData<(D, E)>);

impl<D: Device, E: Element> Shape for Small<D, E> {
    type Device = D;
    type Compute = E;
    const SEQUENCES: usize = 2;
    const LENGTH: usize = 5;
}

fn check<X: Sample, T: Sample, L>()
where
    L: Layer<Small<Cpu, f32>, X>
        + Layer<Small<Naive, f32>, X>
        + Layer<Small<Cpu, bf16>, X>
        + Layer<Small<Naive, bf16>, X>,
{
    let cpu = Cpu::default();
    assert_alike(Width::F32, &run::<Small<Naive, f32>, X, T, L>(&Naive), &run::<Small<Cpu, f32>, X, T, L>(&cpu));
    assert_alike(Width::BF16, &run::<Small<Naive, bf16>, X, T, L>(&Naive), &run::<Small<Cpu, bf16>, X, T, L>(&cpu));
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
    attention_grouped: Features<5>, Tokens, Attention<5, Grouped>;
    attention_turned: Features<5>, Tokens, Attention<5, Llama>;
    attention_normed: Features<7>, Tokens, Attention<7, Qwen>;
    attention_normed_whole: Features<5>, Tokens, Attention<5, Olmo>;
    attention_of_everything: Features<5>, Tokens, Attention<5, All>;
    gated: Features<5>, Tokens, SwiGlu<5, 7>;
    token_embedding: Tokens, Tokens, TokenEmbedding<3, 7>;
    residual: Features<5>, Tokens, Residual<(RmsNorm<5>, Linear<5, 5>)>;
    language_head: Features<5>, Tokens, LmHead<5, 11>;
    error_head: Features<5>, Features<5>, MseHead<5>;
    block: Features<DIM>, Tokens, TinyBlock;
}
