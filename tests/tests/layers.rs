//! Layers: each against finite differences, on shapes that divide by nothing.

use zero_runtime::prelude::*;
use zero_runtime::testing::{gradcheck, gradcheck_towards};

#[path = "layers/narrow.rs"]
mod narrow;
#[path = "layers/swiglu.rs"]
mod swiglu;
#[path = "layers/wrong.rs"]
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

/// A sequence longer than a block of queries, and than a chunk of logits.
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
    linear: Small, Features<3>, Linear<3, 17>;
    linear_to_one: Small, Features<19>, Linear<19, 1>;
    linear_of_one_token: Single, Features<1>, Linear<1, 1>;
    layer_norm: Small, Features<7>, LayerNorm<7>;
    layer_norm_wide: Small, Features<33>, LayerNorm<33>;
    rms_norm: Small, Features<7>, RmsNorm<7>;
    rms_norm_of_one_token: Single, Features<3>, RmsNorm<3>;
    gelu: Small, Features<13>, Gelu;
    relu: Small, Features<13>, Relu;
    silu: Small, Features<13>, Silu;
    attention: Small, Features<6>, CausalSelfAttention<6, 2>;
    attention_one_head: Small, Features<5>, CausalSelfAttention<5, 1>;
    attention_heads_of_one: Small, Features<3>, CausalSelfAttention<3, 3>;
    attention_of_one_token: Single, Features<4>, CausalSelfAttention<4, 2>;
    attention_longer_than_a_block: Long, Features<3>, CausalSelfAttention<3, 1>;
    head: Small, Features<5>, LmHead<5, 11>;
    head_of_many_chunks: Long, Features<2>, LmHead<2, 5000>;
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
