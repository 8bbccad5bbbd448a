//! GPT-2: pre-norm blocks, learned positions, biases everywhere, and matrices that are published transposed.

use zero_runtime::layers::{Bias, Projections};
use zero_runtime::prelude::*;

/// The dimensions that differ between the published models.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    context: usize,
    layers: usize,
    width: usize,
    heads: usize,
}

const SIZES: &[(&str, Size)] = &[
    ("tiny", Size { vocab: 320, context: 64, layers: 2, width: 36, heads: 3 }),
    ("124M", Size { vocab: 50_257, context: 1024, layers: 12, width: 768, heads: 12 }),
    ("355M", Size { vocab: 50_257, context: 1024, layers: 24, width: 1024, heads: 16 }),
    ("774M", Size { vocab: 50_257, context: 1024, layers: 36, width: 1280, heads: 20 }),
    ("1.5B", Size { vocab: 50_257, context: 1024, layers: 48, width: 1600, heads: 25 }),
];

const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width, heads, vocab);
const VOCAB: usize = SIZE.vocab;
const CONTEXT: usize = SIZE.context;
const DIM: usize = SIZE.width;

struct Mix;

impl Heads for Mix {
    const HEADS: usize = SIZE.heads;
    const HEAD_DIM: usize = zero_runtime::divided(DIM, SIZE.heads);
    const BIAS: Bias = Bias::All;
    const NAMES: Projections = Projections::fused("c_attn", "c_proj");
}

/// The deviation of each branch's last matrix falls with the number of branches added to the residual stream.
fn scaled() -> f32 {
    0.02 / (2.0 * SIZE.layers as f32).sqrt()
}

#[derive(Layer)]
struct Block {
    #[residual]
    #[weights("ln_1", transposed("attn"))]
    #[init(0.02, last = scaled())]
    attention: (LayerNorm<DIM>, Attention<DIM, Mix>),
    #[residual]
    #[weights("ln_2", transposed("mlp.c_fc"), _, transposed("mlp.c_proj"))]
    #[init(0.02, last = scaled())]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

#[zero(spec = "../../specs/gpt2.ron")]
#[sizes(SIZES)]
#[config({
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": VOCAB,
    "n_positions": CONTEXT,
    "n_embd": DIM,
    "n_layer": SIZE.layers,
    "n_head": SIZE.heads,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": true
})]
struct Gpt2 {
    #[weights("transformer.wte.weight", "transformer.wpe.weight")]
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    #[weights("transformer.h.{}")]
    blocks: [Block; SIZE.layers],
    #[weights("transformer.ln_f")]
    norm: LayerNorm<DIM>,
    #[tied(embed)]
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt2>()
}
