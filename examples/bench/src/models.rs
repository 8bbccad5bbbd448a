//! The benchmark's GPT in two sizes, each under several specs: one module a spec, named after the peer's mode.

use std::ffi::OsString;
use std::process::ExitCode;

macro_rules! gpt {
    ($module:ident: dim $dim:literal, heads $heads:literal, layers $layers:literal; $($option:tt)*) => {
        pub mod $module {
            use zero_runtime::prelude::*;

            #[derive(Layer)]
            struct Block {
                #[residual]
                attention: (LayerNorm<$dim>, CausalSelfAttention<$dim, $heads>),
                #[residual]
                mlp: (LayerNorm<$dim>, Linear<$dim, { 4 * $dim }>, Gelu, Linear<{ 4 * $dim }, $dim>),
            }

            #[zero($($option)*)]
            pub struct Gpt {
                embed: Embedding<512, 256, $dim>,
                blocks: [Block; $layers],
                norm: LayerNorm<$dim>,
                head: LmHead<$dim, 512>,
            }
        }
    };
}

gpt!(single: dim 384, heads 6, layers 6; stage = 0, ranks = 1);
gpt!(ddp: dim 384, heads 6, layers 6; stage = 0, ranks = 2, bucket = MiB(8));
gpt!(zero1: dim 384, heads 6, layers 6; stage = 1, ranks = 2, bucket = MiB(8));
gpt!(zero2: dim 384, heads 6, layers 6; stage = 2, ranks = 2, bucket = MiB(8));
gpt!(zero3: dim 384, heads 6, layers 6; stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8));
gpt!(small_single: dim 64, heads 4, layers 12; stage = 0, ranks = 1, length = 64);
gpt!(small_ddp: dim 64, heads 4, layers 12; stage = 0, ranks = 2, length = 64);
gpt!(small_zero3: dim 64, heads 4, layers 12; stage = 3, prefetch = 2, ranks = 2, length = 64);
gpt!(overlap: dim 64, heads 4, layers 12; stage = 3, ranks = 2, length = 64, transport = Local);

/// One row of the table: a spec of ours and the mode of the peer that does the same.
pub struct Pair {
    /// Name of our module, and first argument of this binary.
    pub ours: &'static str,
    /// The peer's `--mode`.
    pub peer: &'static str,
    /// Ranks of both.
    pub ranks: usize,
    /// Options of the peer that give the size of ours.
    pub size: &'static [&'static str],
    train: fn(Vec<OsString>) -> ExitCode,
}

const SMALL: &[&str] = &["--dim", "64", "--heads", "4", "--layers", "12", "--seq", "64"];

macro_rules! pair {
    ($module:ident, $peer:literal, $ranks:literal, $size:expr) => {
        Pair {
            ours: stringify!($module),
            peer: $peer,
            ranks: $ranks,
            size: $size,
            train: zero_runtime::run::main_from::<$module::Gpt>,
        }
    };
}

/// All rows.
pub const PAIRS: &[Pair] = &[
    pair!(single, "single", 1, &[]),
    pair!(ddp, "ddp", 2, &[]),
    pair!(zero1, "zero1", 2, &[]),
    pair!(zero2, "fsdp2", 2, &[]),
    pair!(zero3, "fsdp", 2, &[]),
    pair!(small_single, "single", 1, SMALL),
    pair!(small_ddp, "ddp", 2, SMALL),
    pair!(small_zero3, "fsdp", 2, SMALL),
];

/// Trains under the spec that the first argument names, if it names one.
pub fn train(arguments: &[OsString]) -> Option<ExitCode> {
    let name = arguments.get(1)?.to_str()?;
    let pair = PAIRS.iter().find(|pair| pair.ours == name)?;
    let rest = arguments.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, argument)| argument.clone());
    Some((pair.train)(rest.collect()))
}
