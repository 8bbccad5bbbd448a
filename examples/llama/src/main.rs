//! Llama 3: pre-norm blocks, grouped-query attention with stretched rotary positions, SwiGLU.

use zero_runtime::prelude::*;

/// The dimensions that differ between models; 28M is the benchmark's. `factor` and `original` scale the rotary positions.
#[derive(Clone, Copy)]
struct Size {
    vocab: usize,
    layers: usize,
    dim: usize,
    heads: usize,
    key_heads: usize,
    hidden: usize,
    factor: f64,
    original: usize,
    tied: bool,
}

#[rustfmt::skip]
const SIZES: &[(&str, Size)] = &[
    ("tiny", Size { vocab: 320, layers: 2, dim: 48, heads: 6, key_heads: 3, hidden: 88, factor: 8.0, original: 16, tied: false }),
    ("tiny-tied", Size { vocab: 320, layers: 2, dim: 36, heads: 3, key_heads: 1, hidden: 100, factor: 4.0, original: 8, tied: true }),
    ("28M", Size { vocab: 4096, layers: 8, dim: 512, heads: 8, key_heads: 2, hidden: 1536, factor: 8.0, original: 512, tied: false }),
    ("3.2-1B", Size { vocab: 128_256, layers: 16, dim: 2048, heads: 32, key_heads: 8, hidden: 8192, factor: 32.0, original: 8192, tied: true }),
    ("3.1-8B", Size { vocab: 128_256, layers: 32, dim: 4096, heads: 32, key_heads: 8, hidden: 14_336, factor: 8.0, original: 8192, tied: false }),
    ("3.1-70B", Size { vocab: 128_256, layers: 80, dim: 8192, heads: 64, key_heads: 8, hidden: 28_672, factor: 8.0, original: 8192, tied: false }),
];

const SIZE: Size = chosen(SIZES, option_env!("ZERO_SIZE"));
const VOCAB: usize = SIZE.vocab;
const DIM: usize = SIZE.dim;
const HIDDEN: usize = SIZE.hidden;
const BASE: f64 = 5e5;

struct Mix;

impl Heads for Mix {
    const HEADS: usize = SIZE.heads;
    const KEY_HEADS: usize = SIZE.key_heads;
    const HEAD_DIM: usize = DIM / SIZE.heads;
    const ROTARY: Option<Rotary> = Some(Rotary {
        base: BASE,
        scaling: Scaling::Llama3 {
            factor: SIZE.factor,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_length: SIZE.original,
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
    "rope_theta": BASE,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": SIZE.factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": SIZE.original
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
