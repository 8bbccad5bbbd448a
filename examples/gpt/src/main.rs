//! A byte-level GPT (pre-norm, learned positions).

use zero_runtime::prelude::*;

/// The dimensions that differ between sizes.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    context: usize,
    layers: usize,
    width: usize,
    heads: usize,
}

/// The first is small enough to learn on two cores while you watch; the others are the benchmark's.
const SIZES: &[(&str, Size)] = &[
    ("2M", Size { vocab: 256, context: 256, layers: 4, width: 192, heads: 6 }),
    ("11M", Size { vocab: 512, context: 256, layers: 6, width: 384, heads: 6 }),
    ("11M-512", Size { vocab: 512, context: 512, layers: 6, width: 384, heads: 6 }),
    ("0.7M", Size { vocab: 512, context: 64, layers: 12, width: 64, heads: 4 }),
];

const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width, heads, vocab);
const VOCAB: usize = SIZE.vocab;
const CONTEXT: usize = SIZE.context;
const DIM: usize = SIZE.width;
const HEADS: usize = SIZE.heads;

#[derive(Layer)]
struct Block {
    #[residual]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

#[zero(spec = "../../specs/zero3.ron")]
#[sizes(SIZES)]
struct Gpt {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [Block; SIZE.layers],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
