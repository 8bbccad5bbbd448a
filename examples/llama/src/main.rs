//! Llama 2 and 3: pre-norm blocks, grouped-query attention with rotary positions, which Llama 3 stretches, SwiGLU.

use zero_runtime::prelude::*;

/// The dimensions that differ between models; 28M is the benchmark's, and 13B that of Llama 2. `base` is that of the rotary
/// positions, `factor` and `original` stretch them; by a factor of 1 they are as they are.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    layers: usize,
    width: usize,
    heads: usize,
    key_heads: usize,
    inner: usize,
    base: f64,
    factor: f64,
    original: usize,
    tied: bool,
}

#[rustfmt::skip]
const SIZES: &[(&str, Size)] = &[
    ("tiny", Size { vocab: 320, layers: 2, width: 48, heads: 6, key_heads: 3, inner: 88, base: 5e5, factor: 8.0, original: 16, tied: false }),
    ("tiny-tied", Size { vocab: 320, layers: 2, width: 36, heads: 3, key_heads: 1, inner: 100, base: 5e5, factor: 4.0, original: 8, tied: true }),
    ("28M", Size { vocab: 4096, layers: 8, width: 512, heads: 8, key_heads: 2, inner: 1536, base: 5e5, factor: 8.0, original: 512, tied: false }),
    ("3.2-1B", Size { vocab: 128_256, layers: 16, width: 2048, heads: 32, key_heads: 8, inner: 8192, base: 5e5, factor: 32.0, original: 8192, tied: true }),
    ("3.1-8B", Size { vocab: 128_256, layers: 32, width: 4096, heads: 32, key_heads: 8, inner: 14_336, base: 5e5, factor: 8.0, original: 8192, tied: false }),
    ("3.1-70B", Size { vocab: 128_256, layers: 80, width: 8192, heads: 64, key_heads: 8, inner: 28_672, base: 5e5, factor: 8.0, original: 8192, tied: false }),
    ("13B", Size { vocab: 32_000, layers: 40, width: 5120, heads: 40, key_heads: 40, inner: 13_824, base: 1e4, factor: 1.0, original: 4096, tied: false }),
];

const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width, heads, key_heads, inner, vocab);
const VOCAB: usize = SIZE.vocab;
const DIM: usize = SIZE.width;
const HIDDEN: usize = SIZE.inner;
const STRETCHED: bool = SIZE.factor != 1.0;

struct Mix;

impl Heads for Mix {
    const HEADS: usize = SIZE.heads;
    const KEY_HEADS: usize = SIZE.key_heads;
    const HEAD_DIM: usize = zero_runtime::divided(DIM, SIZE.heads);
    const ROTARY: Option<Rotary> = Some(Rotary {
        base: SIZE.base,
        scaling: if STRETCHED {
            Scaling::Llama3 {
                factor: SIZE.factor,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                original_length: SIZE.original,
            }
        } else {
            Scaling::None
        },
    });
}

#[derive(Layer)]
struct Block {
    #[residual]
    #[weights("input_layernorm", "self_attn")]
    attention: (RmsNorm<DIM>, Attention<DIM, Mix>),
    #[residual]
    #[weights("post_attention_layernorm", "mlp", "mlp.down_proj")]
    mlp: (RmsNorm<DIM>, SwiGlu<DIM, HIDDEN>, Linear<HIDDEN, DIM, false>),
}

#[zero(spec = "../../specs/llama.ron")]
#[sizes(SIZES)]
#[config({
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": SIZE.layers,
    "num_attention_heads": SIZE.heads,
    "num_key_value_heads": SIZE.key_heads,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": SIZE.base,
    "rope_scaling": {
        "rope_type": if STRETCHED { "llama3" } else { "default" },
        "factor": STRETCHED.then_some(SIZE.factor),
        "low_freq_factor": STRETCHED.then_some(1.0),
        "high_freq_factor": STRETCHED.then_some(4.0),
        "original_max_position_embeddings": STRETCHED.then_some(SIZE.original)
    },
    "tie_word_embeddings": SIZE.tied
})]
struct Llama {
    #[weights("model.embed_tokens")]
    #[init(0.02)]
    embed: TokenEmbedding<VOCAB, DIM>,
    #[weights("model.layers.{}")]
    #[init(0.02)]
    blocks: [Block; SIZE.layers],
    #[weights("model.norm")]
    norm: RmsNorm<DIM>,
    #[tied(embed, if SIZE.tied)]
    #[weights("lm_head")]
    #[init(0.02)]
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Llama>()
}
