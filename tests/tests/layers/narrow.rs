//! Layers in bf16, against the same layers in f32 with the same numbers: no further apart than their roundings explain. In f32,
//! layers are compared with finite differences.

use std::marker::PhantomData;

use zero_core::device::{Element, bf16};
use zero_runtime::author::Shape;
use zero_runtime::layers::{GeGlu, Residual};
use zero_runtime::prelude::*;
use zero_runtime::testing::Sample;
use zero_tests::buffers::run;
use zero_tests::heads::*;

use super::swiglu::SwiGlu as OwnSwiGlu;

/// Two sequences of five tokens, or of another number.
struct Of<E, const LENGTH: usize = 5>(PhantomData<E>);

impl<E: Element, const TOKENS: usize> Shape for Of<E, TOKENS> {
    type Device = Cpu;
    type Compute = E;
    const SEQUENCES: usize = 2;
    const LENGTH: usize = TOKENS;
}

/// The largest relative change of a number by one rounding to 8 bits.
const ROUNDING: f64 = 1.0 / 256.0;

/// The same for sums in another order, without roundings to bf16.
const SUMS: f64 = 1e-5;

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|x| x * x).sum::<f64>().sqrt()
}

/// `roundings` are the roundings to bf16 before the output, the gradients of parameters, and the gradient of the input. Norms of
/// tensors are compared: a rounding changes each by at most [`ROUNDING`] of it, usually a third of this, which leaves room for
/// roundings that a layer amplifies.
fn rounds<X: Sample, T: Sample, L, const LENGTH: usize>(roundings: [u32; 3])
where
    L: Layer<Of<f32, LENGTH>, X> + Layer<Of<bf16, LENGTH>, X>,
{
    let cpu = Cpu::default();
    let (wide, narrow) = (run::<Of<f32, LENGTH>, X, T, L>(&cpu), run::<Of<bf16, LENGTH>, X, T, L>(&cpu));
    assert_eq!(wide.len(), narrow.len());
    for (((name, wide), (_, narrow)), roundings) in wide.iter().zip(&narrow).zip(roundings) {
        assert_eq!(wide.len(), narrow.len(), "{name}");
        let difference = norm(wide.iter().zip(narrow).map(|(wide, narrow)| f64::from(wide - narrow)));
        let whole = norm(wide.iter().map(|&x| f64::from(x)));
        let admitted = SUMS + ROUNDING * f64::from(roundings);
        assert!(difference <= admitted * whole, "{name}: {difference} of {whole} is more than {roundings} roundings");
        assert!(roundings == 0 || difference > 0.0, "{name}: nothing is rounded");
    }
}

macro_rules! rounds {
    ($($name:ident: $input:ty, $target:ty, $layer:ty, $length:literal, $roundings:expr;)*) => {
        $(#[test] fn $name() { rounds::<$input, $target, $layer, $length>($roundings); })*
    };
}

// Roundings of the output, of gradients of parameters, of the gradient of the input.
rounds! {
    embedding: Tokens, Tokens, Embedding<3, 5, 7>, 5, [1, 0, 0];
    linear: Features<3>, Tokens, Linear<3, 17>, 5, [1, 0, 1];
    linear_of_one_row: Features<33>, Tokens, Linear<33, 5>, 1, [1, 0, 1];
    linear_beyond_a_tile: Features<65>, Tokens, Linear<65, 37>, 35, [1, 0, 1];
    layer_norm: Features<7>, Tokens, LayerNorm<7>, 5, [1, 0, 1];
    layer_norm_wide: Features<33>, Tokens, LayerNorm<33>, 5, [1, 0, 1];
    rms_norm: Features<7>, Tokens, RmsNorm<7>, 5, [1, 0, 1];
    gelu: Features<13>, Tokens, Gelu, 5, [1, 0, 1];
    relu: Features<13>, Tokens, Relu, 5, [0, 0, 0];
    silu: Features<13>, Tokens, Silu, 5, [1, 0, 1];
    // Queries, keys and values; the output of attention; the result. Backward reads the first two, and rounds its own.
    attention: Features<6>, Tokens, CausalSelfAttention<6, 2>, 5, [3, 4, 5];
    attention_of_one_token: Features<4>, Tokens, CausalSelfAttention<4, 2>, 1, [3, 4, 5];
    attention_longer_than_a_block: Features<3>, Tokens, CausalSelfAttention<3, 1>, 67, [3, 4, 5];
    attention_grouped: Features<5>, Tokens, Attention<5, Grouped>, 5, [3, 4, 5];
    attention_in_a_window: Features<5>, Tokens, Attention<5, Pairs>, 5, [3, 4, 5];
    // Once more where queries and keys are rotated, and where they are normed; as often in backward.
    attention_turned: Features<5>, Tokens, Attention<5, Turned>, 5, [4, 6, 7];
    attention_normed: Features<7>, Tokens, Attention<7, Normed>, 5, [4, 6, 7];
    attention_normed_and_turned: Features<7>, Tokens, Attention<7, Qwen>, 5, [5, 8, 9];
    attention_normed_turned_in_a_window: Features<5>, Tokens, Attention<5, Olmo>, 5, [5, 8, 9];
    attention_of_everything: Features<3>, Tokens, Attention<3, All>, 67, [5, 8, 9];
    // Both products, and the result; backward reads the first.
    gated_by_silu: Features<5>, Tokens, SwiGlu<5, 7>, 5, [2, 2, 3];
    gated_by_gelu: Features<5>, Tokens, GeGlu<5, 7>, 5, [2, 2, 3];
    token_embedding: Tokens, Tokens, TokenEmbedding<3, 7>, 5, [0, 0, 0];
    linear_without_bias: Features<3>, Tokens, Linear<3, 17, false>, 5, [1, 0, 1];
    // The features between the two layers, and their gradient; the residual connection rounds once more.
    residual: Features<5>, Tokens, Residual<(RmsNorm<5>, Linear<5, 5>)>, 5, [3, 2, 4];
    // The logits of two features, whose difference is the loss; their gradient.
    language_head: Features<5>, Tokens, LmHead<5, 11>, 5, [2, 2, 3];
    head_of_many_chunks: Features<2>, Tokens, LmHead<2, 5000>, 67, [2, 2, 3];
    error_head: Features<5>, Features<5>, MseHead<5>, 5, [0, 0, 1];
    // Two products, their gate and product; backward rounds each of them and of their gradients.
    swiglu: Features<5>, Tokens, OwnSwiGlu<5, 7>, 5, [5, 8, 9];
}
