//! Qwen3 without experts: pre-norm blocks, grouped-query attention with normed queries and keys, SwiGLU.

use zero_runtime::prelude::*;

/// The dimensions that differ between the published models.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    layers: usize,
    width: usize,
    heads: usize,
    key_heads: usize,
    head_dim: usize,
    inner: usize,
    tied: bool,
}

#[rustfmt::skip]
const SIZES: &[(&str, Size)] = &[
    ("tiny", Size { vocab: 320, layers: 2, width: 40, heads: 6, key_heads: 3, head_dim: 8, inner: 88, tied: true }),
    ("tiny-untied", Size { vocab: 320, layers: 3, width: 40, heads: 3, key_heads: 1, head_dim: 16, inner: 88, tied: false }),
    ("0.6B", Size { vocab: 151_936, layers: 28, width: 1024, heads: 16, key_heads: 8, head_dim: 128, inner: 3072, tied: true }),
    ("4B", Size { vocab: 151_936, layers: 36, width: 2560, heads: 32, key_heads: 8, head_dim: 128, inner: 9728, tied: true }),
    ("8B", Size { vocab: 151_936, layers: 36, width: 4096, heads: 32, key_heads: 8, head_dim: 128, inner: 12_288, tied: false }),
];

const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width, heads, key_heads, inner, vocab);
const VOCAB: usize = SIZE.vocab;
const DIM: usize = SIZE.width;
const HIDDEN: usize = SIZE.inner;
const BASE: f64 = 1e6;

struct Mix;

impl Heads for Mix {
    const HEADS: usize = SIZE.heads;
    const KEY_HEADS: usize = SIZE.key_heads;
    const HEAD_DIM: usize = SIZE.head_dim;
    const NORM: QueryKeyNorm = QueryKeyNorm::EachHead(E6::EPSILON);
    const ROTARY: Option<Rotary> = Some(Rotary { base: BASE, scaling: Scaling::None });
}

#[derive(Layer)]
struct Block {
    #[residual]
    #[weights("input_layernorm", "self_attn")]
    attention: (RmsNorm<DIM, E6>, Attention<DIM, Mix>),
    #[residual]
    #[weights("post_attention_layernorm", "mlp", "mlp.down_proj")]
    mlp: (RmsNorm<DIM, E6>, SwiGlu<DIM, HIDDEN>, Linear<HIDDEN, DIM, false>),
}

#[zero(spec = "../../specs/qwen3.ron")]
#[sizes(SIZES)]
#[config({
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": SIZE.layers,
    "num_attention_heads": SIZE.heads,
    "num_key_value_heads": SIZE.key_heads,
    "head_dim": SIZE.head_dim,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": BASE,
    "tie_word_embeddings": SIZE.tied
})]
struct Qwen3 {
    #[weights("model.embed_tokens")]
    #[init(0.02)]
    embed: TokenEmbedding<VOCAB, DIM>,
    #[weights("model.layers.{}")]
    #[init(0.02)]
    blocks: [Block; SIZE.layers],
    #[weights("model.norm")]
    norm: RmsNorm<DIM, E6>,
    #[tied(embed, if SIZE.tied)]
    #[weights("lm_head")]
    #[init(0.02)]
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Qwen3>()
}
