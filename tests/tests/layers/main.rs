//! Layers: each against finite differences, on awkward shapes, and against a second device. A layer has a line here,
//! one in `narrow` for bf16, and one in `naive::layers`; its formula in f64 is in `formulas`.

use zero_runtime::author::Shape;
use zero_runtime::layers::{Chain, Gated, GeGlu, Residual};
use zero_runtime::prelude::*;
use zero_runtime::testing::{gradcheck, gradcheck_towards};
use zero_tests::heads::*;

mod faults;
mod formulas;
mod naive;
mod narrow;
mod swiglu;
mod widths;
mod wrong;

/// Two sequences of five tokens.
struct Small;
impl Shape for Small {
    type Device = Cpu;
    type Compute = f32;
    const SEQUENCES: usize = 2;
    const LENGTH: usize = 5;
}

/// One token.
struct Single;
impl Shape for Single {
    type Device = Cpu;
    type Compute = f32;
    const SEQUENCES: usize = 1;
    const LENGTH: usize = 1;
}

/// A sequence longer than a block of queries and than a chunk of logits.
struct Long;
impl Shape for Long {
    type Device = Cpu;
    type Compute = f32;
    const SEQUENCES: usize = 1;
    const LENGTH: usize = 67;
}

#[derive(Layer)]
struct Block {
    #[residual]
    attention: (LayerNorm<6>, CausalSelfAttention<6, 2>),
    #[residual]
    mlp: (LayerNorm<6>, Linear<6, 7>, Gelu, Linear<7, 6>),
}

macro_rules! gradchecks {
    ($($name:ident: $shape:ty, $input:ty, $layer:ty;)*) => {
        $(#[test] fn $name() { gradcheck::<$shape, $input, $layer>(); })*
    };
}

gradchecks! {
    embedding: Small, Tokens, Embedding<3, 5, 7>;
    embedding_of_one_token: Single, Tokens, Embedding<3, 1, 1>;
    embedding_with_unused_positions: Small, Tokens, Embedding<4, 9, 3>;
    token_embedding: Small, Tokens, TokenEmbedding<3, 7>;
    token_embedding_of_one_token: Single, Tokens, TokenEmbedding<3, 1>;
    linear: Small, Features<3>, Linear<3, 17>;
    linear_to_one: Small, Features<19>, Linear<19, 1>;
    linear_of_one_token: Single, Features<1>, Linear<1, 1>;
    linear_without_bias: Small, Features<3>, Linear<3, 17, false>;
    layer_norm: Small, Features<7>, LayerNorm<7>;
    layer_norm_wide: Small, Features<33>, LayerNorm<33>;
    rms_norm: Small, Features<7>, RmsNorm<7>;
    rms_norm_of_one_token: Single, Features<3>, RmsNorm<3>;
    layer_norm_of_another_epsilon: Small, Features<7>, LayerNorm<7, E6>;
    rms_norm_of_another_epsilon: Small, Features<7>, RmsNorm<7, E6>;
    gelu: Small, Features<13>, Gelu;
    relu: Small, Features<13>, Relu;
    silu: Small, Features<13>, Silu;
    attention: Small, Features<6>, CausalSelfAttention<6, 2>;
    attention_one_head: Small, Features<5>, CausalSelfAttention<5, 1>;
    attention_heads_of_one: Small, Features<3>, CausalSelfAttention<3, 3>;
    attention_of_one_token: Single, Features<4>, CausalSelfAttention<4, 2>;
    attention_longer_than_a_block: Long, Features<3>, CausalSelfAttention<3, 1>;
    attention_grouped: Small, Features<5>, Attention<5, Grouped>;
    attention_one_key: Small, Features<4>, Attention<4, OneKey>;
    attention_biased: Small, Features<5>, Attention<5, Biased>;
    attention_fused: Small, Features<5>, Attention<5, Fused>;
    attention_in_a_window: Small, Features<5>, Attention<5, Pairs>;
    attention_alone: Small, Features<5>, Attention<5, Alone>;
    attention_in_a_wide_window: Small, Features<5>, Attention<5, Wide>;
    attention_normed: Small, Features<7>, Attention<7, Normed>;
    attention_normed_whole: Small, Features<5>, Attention<5, NormedWhole>;
    attention_turned: Small, Features<5>, Attention<5, Turned>;
    attention_turned_less: Small, Features<5>, Attention<5, TurnedLess>;
    attention_turned_as_llama: Small, Features<5>, Attention<5, Llama>;
    attention_normed_and_turned: Small, Features<7>, Attention<7, Qwen>;
    attention_normed_turned_in_a_window: Small, Features<5>, Attention<5, Olmo>;
    attention_of_everything: Small, Features<5>, Attention<5, All>;
    attention_of_everything_of_one_token: Single, Features<5>, Attention<5, All>;
    attention_of_everything_longer_than_a_block: Long, Features<3>, Attention<3, All>;
    head: Small, Features<5>, LmHead<5, 11>;
    head_of_many_chunks: Long, Features<2>, LmHead<2, 5000>;
    gated_by_silu: Small, Features<5>, SwiGlu<5, 7>;
    gated_by_gelu: Small, Features<5>, GeGlu<5, 7>;
    gated_by_relu: Single, Features<1>, Gated<1, 3, Relu>;
    gated_in_a_block: Small, Features<5>, Residual<(RmsNorm<5, E6>, SwiGlu<5, 7>, Linear<7, 5, false>)>;
    swiglu: Small, Features<5>, swiglu::SwiGlu<5, 7>;
    swiglu_of_one_token: Single, Features<1>, swiglu::SwiGlu<1, 3>;
    swiglu_in_a_block: Small, Features<5>, Residual<(RmsNorm<5>, swiglu::SwiGlu<5, 7>)>;
    chain: Small, Features<3>, Chain<Linear<3, 5>, Chain<Gelu, Linear<5, 2>>>;
    tuple_of_six: Small, Features<3>, (Linear<3, 4>, Silu, RmsNorm<4>, Linear<4, 5>, Gelu, Linear<5, 2>);
    activation_of_an_activation: Small, Features<3>, (Linear<3, 5>, Gelu, Silu);
    activation_first: Small, Features<3>, (Gelu, Linear<3, 5>, Relu);
    residual_activation: Small, Features<5>, Residual<Gelu>;
    residual_norm: Small, Features<5>, Residual<RmsNorm<5>>;
    residual_chain: Small, Features<3>, Residual<(Linear<3, 3>, Gelu)>;
    residual_of_a_residual: Small, Features<5>, Residual<(LayerNorm<5>, Residual<Linear<5, 5>>)>;
    derived_block: Small, Features<6>, Block;
    model_in_one: Small, Tokens, (Embedding<3, 5, 6>, Block, LayerNorm<6>, LmHead<6, 4>);
}

/// Heads whose targets are numbers.
#[test]
fn mse_head() {
    gradcheck_towards::<Small, Features<5>, Features<5>, MseHead<5>>();
    gradcheck_towards::<Single, Features<1>, Features<1>, MseHead<1>>();
    gradcheck_towards::<Small, Features<3>, Features<33>, (Linear<3, 33>, MseHead<33>)>();
}
