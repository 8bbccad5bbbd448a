//! Tiny models with the sizes of the golden files. No number of ranks divides their parameter counts.

use zero_core::model::Model;
use zero_plan::{Unit, Width};
use zero_runtime::prelude::*;

/// The number of different ids.
pub const VOCAB: usize = 29;
/// The longest sequence.
pub const CONTEXT: usize = 12;
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

/// The models, in a width.
macro_rules! tiny {
    ($compute:ident) => {
        /// A GPT with a head of its own.
        #[zero(stage = 3, ranks = 2, sequences = 2, length = 11, micro_batches = 2, compute = $compute)]
        pub struct Untied {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [TinyBlock; 2],
            norm: LayerNorm<DIM>,
            head: LmHead<DIM, VOCAB>,
        }

        /// A GPT whose head shares the embedding.
        #[zero(stage = 3, ranks = 2, sequences = 2, length = 11, micro_batches = 2, compute = $compute)]
        pub struct Tied {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [TinyBlock; 2],
            norm: LayerNorm<DIM>,
            #[tied(embed)]
            head: LmHead<DIM, VOCAB>,
        }

        /// [`Untied`] with twice the sequences in a micro-batch.
        #[zero(stage = 0, ranks = 1, sequences = 4, length = 11, compute = $compute)]
        pub struct Wide {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [TinyBlock; 2],
            norm: LayerNorm<DIM>,
            head: LmHead<DIM, VOCAB>,
        }

        /// [`Tied`] with enough tokens in a micro-batch for threads to share a matrix product.
        #[zero(stage = 0, ranks = 1, sequences = 40, length = 11, compute = $compute)]
        pub struct Tall {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [TinyBlock; 2],
            norm: LayerNorm<DIM>,
            #[tied(embed)]
            head: LmHead<DIM, VOCAB>,
        }

        /// As deep as the model of the specs, for each of their layouts.
        #[zero(stage = 0, ranks = 1, sequences = 1, length = 128, compute = $compute)]
        pub struct Deep {
            embed: Embedding<VOCAB, 128, DIM>,
            blocks: [TinyBlock; 4],
            norm: LayerNorm<DIM>,
            #[tied(embed)]
            head: LmHead<DIM, VOCAB>,
        }
    };
}

tiny!(F32);

/// The same, computing in bf16.
pub mod narrow {
    use super::*;

    tiny!(BF16);
}

/// A model, and the same in bf16.
pub trait InBothWidths: Model<Input = Tokens, Target = Tokens> {
    /// The model that computes in bf16.
    type Narrow: Model<Input = Tokens, Target = Tokens>;

    /// The units of the model that computes in this width.
    fn units(compute: Width) -> &'static [Unit] {
        match compute {
            Width::F32 => Self::PLAN.units,
            Width::BF16 => Self::Narrow::PLAN.units,
        }
    }
}

macro_rules! in_both_widths {
    ($($name:ident)*) => {
        $(impl InBothWidths for $name { type Narrow = narrow::$name; })*
    };
}

in_both_widths!(Untied Tied Wide Tall Deep);

/// Values of a byte.
pub const BYTES: usize = 256;

/// A GPT of bytes on a pipeline, which the binary `piped` trains.
#[zero(spec = "specs/piped.ron")]
pub struct Piped {
    embed: Embedding<BYTES, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, BYTES>,
}

/// The same with all states of parameters on disk, which the binary `offloaded` trains.
#[zero(spec = "specs/offloaded.ron")]
pub struct Offloaded {
    embed: Embedding<BYTES, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, BYTES>,
}

/// The same on two ranks of ZeRO-3 that publish their parameters, which the binary `published` trains.
#[zero(spec = "specs/published.ron")]
pub struct Published {
    embed: Embedding<BYTES, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, BYTES>,
}

/// The same on two hosts, which the binary `published_hosts` trains.
#[zero(spec = "specs/published_hosts.ron")]
pub struct PublishedOnHosts {
    embed: Embedding<BYTES, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, BYTES>,
}
