//! The benchmark's GPT in two sizes, each under several specs: one module a spec, named after the peer's mode.

use std::ffi::OsString;
use std::process::ExitCode;

use zero_runtime::model::Model;
use zero_runtime::plan::Plan;

use crate::flop;

macro_rules! gpt {
    ($module:ident: dim $dim:literal, heads $heads:literal, layers $layers:literal, context $context:literal; $($option:tt)*) => {
        /// A size under a spec.
        pub mod $module {
            use zero_runtime::prelude::*;

            /// Blocks.
            pub const LAYERS: usize = $layers;
            /// Width of the residual stream.
            pub const WIDTH: usize = $dim;

            #[derive(Layer)]
            struct Block {
                #[residual]
                attention: (LayerNorm<$dim>, CausalSelfAttention<$dim, $heads>),
                #[residual]
                mlp: (LayerNorm<$dim>, Linear<$dim, { 4 * $dim }>, Gelu, Linear<{ 4 * $dim }, $dim>),
            }

            #[zero($($option)*)]
            #[doc = "The model."]
            pub struct Gpt {
                embed: Embedding<512, $context, $dim>,
                blocks: [Block; $layers],
                norm: LayerNorm<$dim>,
                head: LmHead<$dim, 512>,
            }
        }
    };
}

gpt!(single: dim 384, heads 6, layers 6, context 256; stage = 0, ranks = 1);
gpt!(ddp: dim 384, heads 6, layers 6, context 256; stage = 0, ranks = 2, bucket = MiB(8));
gpt!(zero1: dim 384, heads 6, layers 6, context 256; stage = 1, ranks = 2, bucket = MiB(8));
gpt!(zero2: dim 384, heads 6, layers 6, context 256; stage = 2, ranks = 2, bucket = MiB(8));
gpt!(zero3: dim 384, heads 6, layers 6, context 256; stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8));
gpt!(small_single: dim 64, heads 4, layers 12, context 64; stage = 0, ranks = 1, length = 64);
gpt!(small_ddp: dim 64, heads 4, layers 12, context 64; stage = 0, ranks = 2, length = 64);
gpt!(small_zero3: dim 64, heads 4, layers 12, context 64; stage = 3, prefetch = 2, ranks = 2, length = 64);
gpt!(overlap: dim 64, heads 4, layers 12, context 64; stage = 3, ranks = 2, length = 64, transport = Local);

/// One row of the table: a spec of ours and the mode of the peer that does the same.
pub struct Row {
    /// Name of our module.
    pub ours: &'static str,
    /// The peer's `--mode`.
    pub peer: &'static str,
    /// Options of the peer that give the size of ours.
    pub size: &'static [&'static str],
    /// Our plan.
    pub plan: &'static Plan<'static>,
    /// Blocks, and width of the residual stream.
    shape: (usize, usize),
    /// Trains, with the arguments of any generated binary.
    pub train: fn(Vec<OsString>) -> ExitCode,
}

impl Row {
    /// Ranks of both.
    pub fn ranks(&self) -> usize {
        self.plan.config.mesh.ranks()
    }

    /// What a step of a rank computes.
    pub fn step(&self) -> flop::Step {
        flop::Step::of(self.plan, self.shape.0, self.shape.1)
    }
}

const SMALL: &[&str] = &["--dim", "64", "--heads", "4", "--layers", "12", "--seq", "64"];

macro_rules! row {
    ($module:ident, $peer:literal, $size:expr) => {
        Row {
            ours: stringify!($module),
            peer: $peer,
            size: $size,
            plan: $module::Gpt::PLAN,
            shape: ($module::LAYERS, $module::WIDTH),
            train: zero_runtime::run::main_from::<$module::Gpt>,
        }
    };
}

/// All rows, in the order in which a round measures them.
pub const ROWS: &[Row] = &[
    row!(single, "single", &[]),
    row!(zero3, "fsdp", &[]),
    row!(zero2, "fsdp2", &[]),
    row!(zero1, "zero1", &[]),
    row!(ddp, "ddp", &[]),
    row!(small_single, "single", SMALL),
    row!(small_zero3, "fsdp", SMALL),
    row!(small_ddp, "ddp", SMALL),
];
