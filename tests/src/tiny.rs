//! Tiny models whose parameter counts divide by nothing, with the sizes of the golden files.

use zero_runtime::prelude::*;

/// Ids, whatever they stand for.
pub const VOCAB: usize = 29;
const CONTEXT: usize = 12;
/// Features of a token.
pub const DIM: usize = 24;
const HEADS: usize = 3;

/// A pre-norm transformer block.
#[derive(Layer)]
pub struct TinyBlock {
    #[residual]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

/// A GPT with a head of its own.
#[zero(stage = 3, ranks = 2, sequences = 2, length = 11, micro_batches = 2)]
pub struct Untied {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

/// A GPT whose head shares the embedding.
#[zero(stage = 3, ranks = 2, sequences = 2, length = 11, micro_batches = 2)]
pub struct Tied {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    #[tied(embed)]
    head: LmHead<DIM, VOCAB>,
}

/// [`Untied`] with twice the sequences in a micro-batch.
#[zero(stage = 0, ranks = 1, sequences = 4, length = 11)]
pub struct Wide {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

/// [`Tied`] with enough tokens in a micro-batch for threads to share a matrix product.
#[zero(stage = 0, ranks = 1, sequences = 40, length = 11)]
pub struct Tall {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    #[tied(embed)]
    head: LmHead<DIM, VOCAB>,
}

/// Values of a byte.
pub const BYTES: usize = 256;

/// A GPT of bytes on a pipeline: what the binary `piped` trains.
#[zero(spec = "specs/piped.ron")]
pub struct Piped {
    embed: Embedding<BYTES, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, BYTES>,
}
