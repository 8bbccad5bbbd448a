//! OLMo 3: norms after attention and MLP instead of before, norms of whole queries and keys, and windows in three of every four
//! layers; only the fourth stretches its rotary positions.

use zero_runtime::prelude::*;

/// The dimensions that differ between the published models; `original` is the length before rotary positions were stretched.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    layers: usize,
    width: usize,
    heads: usize,
    key_heads: usize,
    inner: usize,
    window: usize,
    original: usize,
}

#[rustfmt::skip]
const SIZES: &[(&str, Size)] = &[
    ("tiny", Size { vocab: 320, layers: 8, width: 36, heads: 6, key_heads: 3, inner: 40, window: 5, original: 8 }),
    ("7B", Size { vocab: 100_278, layers: 32, width: 4096, heads: 32, key_heads: 32, inner: 11_008, window: 4096, original: 8192 }),
];

const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width, heads, key_heads, inner, vocab);
const FOURS: usize = zero_runtime::divided(SIZE.layers, 4);
const VOCAB: usize = SIZE.vocab;
const DIM: usize = SIZE.width;
const HIDDEN: usize = SIZE.inner;
const BASE: f64 = 5e5;
const FACTOR: f64 = 8.0;
/// 0.1 ln(`FACTOR`) + 1.
const ATTENTION_FACTOR: f64 = 1.207_944_154_167_983_6;

struct Window;

impl Heads for Window {
    const HEADS: usize = SIZE.heads;
    const KEY_HEADS: usize = SIZE.key_heads;
    const HEAD_DIM: usize = zero_runtime::divided(DIM, SIZE.heads);
    const WINDOW: Option<usize> = Some(SIZE.window);
    const NORM: QueryKeyNorm = QueryKeyNorm::Whole(E6::EPSILON);
    const ROTARY: Option<Rotary> = Some(Rotary { base: BASE, scaling: Scaling::None });
}

struct Full;

impl Heads for Full {
    const WINDOW: Option<usize> = None;
    const ROTARY: Option<Rotary> = Some(Rotary {
        base: BASE,
        scaling: Scaling::Yarn {
            factor: FACTOR,
            original_length: SIZE.original,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Some(ATTENTION_FACTOR),
            truncate: true,
        },
    });
    const HEADS: usize = Window::HEADS;
    const KEY_HEADS: usize = Window::KEY_HEADS;
    const HEAD_DIM: usize = Window::HEAD_DIM;
    const NORM: QueryKeyNorm = Window::NORM;
}

#[derive(Layer)]
struct Block<H: Heads> {
    #[residual]
    #[weights("self_attn", "post_attention_layernorm")]
    attention: (Attention<DIM, H>, RmsNorm<DIM, E6>),
    #[residual]
    #[weights("mlp", "mlp.down_proj", "post_feedforward_layernorm")]
    mlp: (SwiGlu<DIM, HIDDEN>, Linear<HIDDEN, DIM, false>, RmsNorm<DIM, E6>),
}

/// The types of the layers, as `config.json` names them.
fn layer_types() -> Vec<&'static str> {
    ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"].repeat(FOURS)
}

#[zero(spec = "../../specs/olmo3.ron")]
#[sizes(SIZES)]
#[config({
    "architectures": ["Olmo3ForCausalLM"],
    "model_type": "olmo3",
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": SIZE.layers,
    "num_attention_heads": SIZE.heads,
    "num_key_value_heads": SIZE.key_heads,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "sliding_window": SIZE.window,
    "layer_types": layer_types(),
    "rope_theta": BASE,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": FACTOR,
        "original_max_position_embeddings": SIZE.original,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": ATTENTION_FACTOR
    },
    "tie_word_embeddings": false
})]
struct Olmo3 {
    #[weights("model.embed_tokens")]
    #[init(0.02)]
    embed: TokenEmbedding<VOCAB, DIM>,
    #[alternating]
    #[weights("model.layers.{}")]
    #[init(0.02)]
    blocks: [(Block<Window>, Block<Window>, Block<Window>, Block<Full>); FOURS],
    #[weights("model.norm")]
    norm: RmsNorm<DIM, E6>,
    #[weights("lm_head")]
    #[init(0.02)]
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Olmo3>()
}
