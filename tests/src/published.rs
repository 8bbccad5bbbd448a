//! A tiny model that is published: its tensors have the names of GPT-2's, matrices are stored transposed, and a config has its
//! sizes.

use zero_runtime::prelude::*;

use crate::tiny::{DIM, VOCAB};

const CONTEXT: usize = 12;
const HEADS: usize = 3;

/// A pre-norm transformer block.
#[derive(Layer)]
pub struct PublishedBlock {
    #[residual]
    #[weights("ln_1", transposed("attn"))]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    #[weights("ln_2", transposed("mlp.c_fc"), _, transposed("mlp.c_proj"))]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

/// A GPT whose head shares the embedding.
#[zero(stage = 3, ranks = 2, sequences = 2, length = 11, micro_batches = 2)]
#[config({
    "model_type": "gpt2", "vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": DIM, "n_head": HEADS, "n_layer": 2,
    "layer_norm_epsilon": 1e-5,
})]
pub struct Published {
    #[weights("transformer.wte.weight", "transformer.wpe.weight")]
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    #[weights("transformer.h.{}")]
    blocks: [PublishedBlock; 2],
    #[weights("transformer.ln_f")]
    norm: LayerNorm<DIM>,
    #[tied(embed)]
    #[weights("lm_head")]
    head: LmHead<DIM, VOCAB>,
}
