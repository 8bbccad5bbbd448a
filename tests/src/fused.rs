//! Fused: one small model twice, with attention by zero's own kernels and by cuDNN's. It has heads with keys of their
//! own, and heads that share keys, see a window of tokens, and have rotary positions.

use zero_runtime::prelude::*;

const DIM: usize = 32;
const VOCAB: usize = 256;
const CONTEXT: usize = 16;

/// Four heads of 8 features, where pairs of heads share keys.
pub struct Near;

impl Heads for Near {
    const HEADS: usize = 4;
    const KEY_HEADS: usize = 2;
    const HEAD_DIM: usize = 8;
    const WINDOW: Option<usize> = Some(5);
    const ROTARY: Option<Rotary> = Some(Rotary { base: 10_000.0, scaling: Scaling::None });
}

/// Both kinds of heads, and an MLP after them.
#[derive(Layer)]
pub struct Block {
    #[residual]
    far: (LayerNorm<DIM>, CausalSelfAttention<DIM, 2>),
    #[residual]
    near: (RmsNorm<DIM>, Attention<DIM, Near>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, DIM>, Gelu, Linear<DIM, DIM>),
}

macro_rules! model {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        pub struct $name {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [Block; 2],
            norm: LayerNorm<DIM>,
            head: LmHead<DIM, VOCAB>,
        }
    };
}

model! {
    /// With attention by zero's own kernels.
    #[zero(stage = 3, ranks = 2, sequences = 2, length = 11, compute = BF16, device = Cuda)]
    Own
}

model! {
    /// With attention by cuDNN's kernels.
    #[zero(stage = 3, ranks = 2, sequences = 2, length = 11, compute = BF16, device = Cuda, attention = Cudnn)]
    Fused
}
