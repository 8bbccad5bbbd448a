//! A byte-level GPT (pre-norm, learned positions), small enough to learn on two cores while you watch.

use zero_runtime::prelude::*;

const VOCAB: usize = 256;
const CONTEXT: usize = 256;
const DIM: usize = 192;
const HEADS: usize = 6;

#[derive(Layer)]
struct Block {
    #[residual]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

#[zero(spec = "../../specs/zero3.ron")]
struct Gpt {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [Block; 4],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Gpt>()
}
