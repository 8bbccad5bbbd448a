//! The benchmark's GPT in two sizes and a Llama, each under several specs: one module for each spec, named after the spec's settings.

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use zero_core::model::Model;
use zero_runtime::plan::{Plan, Width};

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
gpt!(hosts_zero3: dim 384, heads 6, layers 6, context 256;
    stage = 3, prefetch = 2, ranks = 2, nodes = 2, transport = Cluster, bucket = MiB(8));
gpt!(single_bf16: dim 384, heads 6, layers 6, context 256; stage = 0, ranks = 1, compute = BF16);
gpt!(single_bf16_params: dim 384, heads 6, layers 6, context 256;
    stage = 0, ranks = 1, compute = BF16, params = BF16, master = F32);
gpt!(zero3_bf16: dim 384, heads 6, layers 6, context 256;
    stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8), compute = BF16);
gpt!(long: dim 384, heads 6, layers 6, context 512; stage = 0, ranks = 1, sequences = 8, length = 512);
gpt!(long_bf16: dim 384, heads 6, layers 6, context 512;
    stage = 0, ranks = 1, sequences = 8, length = 512, compute = BF16);
gpt!(small_single: dim 64, heads 4, layers 12, context 64; stage = 0, ranks = 1, length = 64);
gpt!(small_ddp: dim 64, heads 4, layers 12, context 64; stage = 0, ranks = 2, length = 64);
gpt!(small_zero3: dim 64, heads 4, layers 12, context 64; stage = 3, prefetch = 2, ranks = 2, length = 64);
gpt!(saved: dim 384, heads 6, layers 6, context 256;
    stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8), snapshot = true);
gpt!(waited: dim 384, heads 6, layers 6, context 256; stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8));
gpt!(large_saved: dim 768, heads 12, layers 12, context 64;
    stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8), sequences = 1, length = 64, snapshot = true);
gpt!(large_waited: dim 768, heads 12, layers 12, context 64;
    stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8), sequences = 1, length = 64);
gpt!(large_3: dim 768, heads 12, layers 12, context 64;
    stage = 3, prefetch = 2, ranks = 3, bucket = MiB(8), sequences = 1, length = 64);
gpt!(large_4: dim 768, heads 12, layers 12, context 64;
    stage = 3, prefetch = 2, ranks = 4, bucket = MiB(8), sequences = 1, length = 64);
gpt!(overlap: dim 64, heads 4, layers 12, context 64; stage = 3, ranks = 2, length = 64, transport = Local);

macro_rules! llama {
    ($module:ident: $($option:tt)*) => {
        /// A Llama of 8 layers under a spec.
        pub mod $module {
            use zero_runtime::prelude::*;

            /// Blocks.
            pub const LAYERS: usize = 8;
            /// Width of the residual stream.
            pub const WIDTH: usize = 512;

            struct Mix;

            impl Heads for Mix {
                const HEADS: usize = 8;
                const KEY_HEADS: usize = 2;
                const HEAD_DIM: usize = 64;
                const ROTARY: Option<Rotary> = Some(Rotary { base: 5e5, scaling: Scaling::None });
            }

            #[derive(Layer)]
            struct Block {
                #[residual]
                attention: (RmsNorm<WIDTH>, Attention<WIDTH, Mix>),
                #[residual]
                mlp: (RmsNorm<WIDTH>, SwiGlu<WIDTH, 1536>, Linear<1536, WIDTH, false>),
            }

            #[zero(sequences = 4, length = 512, $($option)*)]
            #[doc = "The model."]
            pub struct Llama {
                embed: TokenEmbedding<4096, WIDTH>,
                blocks: [Block; LAYERS],
                norm: RmsNorm<WIDTH>,
                head: LmHead<WIDTH, 4096>,
            }

            pub use Llama as Gpt;
        }
    };
}

llama!(llama: stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8));
llama!(llama_bf16: stage = 3, prefetch = 2, ranks = 2, bucket = MiB(8), compute = BF16);
llama!(llama_single: stage = 0, ranks = 1);
llama!(llama_single_bf16: stage = 0, ranks = 1, compute = BF16);

/// One row of the table: a spec of ours and how the peer does the same.
pub struct Row {
    /// Its name: that of our module, followed by the number of threads if there are several.
    pub ours: &'static str,
    /// Threads of a rank, ours and the peer's.
    pub threads: usize,
    /// How the peer does it. Without a peer, only our memory is measured, and one step is enough.
    pub peer: Option<Mode>,
    /// Options that give the peer's model the size of ours.
    pub size: &'static [&'static str],
    /// Our plan.
    pub plan: &'static Plan<'static>,
    /// Blocks, and width of the residual stream.
    shape: (usize, usize),
    /// Trains, with the arguments of any generated binary.
    pub train: fn(Vec<OsString>) -> ExitCode,
}

/// How the peer trains.
pub struct Mode {
    /// Its `--mode`.
    pub name: &'static str,
    /// Its `--precision`.
    pub precision: &'static str,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.precision == F32 { Ok(()) } else { write!(f, ", {}", self.precision) }
    }
}

impl Row {
    /// The row of that name.
    pub fn of(ours: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| row.ours == ours)
    }

    /// The width in which our layers compute.
    pub fn width(&self) -> Width {
        self.plan.config.precision.compute
    }

    /// Ranks, ours and the peer's.
    pub fn ranks(&self) -> usize {
        self.plan.config.mesh.ranks()
    }

    /// The sizes of a step of a rank, to count its operations.
    pub fn step(&self) -> flop::Step {
        flop::Step::of(self.plan, self.shape.0, self.shape.1)
    }
}

const LLAMA: &[&str] =
    &["--model", "llama", "--dim", "512", "--heads", "8", "--layers", "8", "--seq", "512", "--vocab", "4096"];
const SMALL: &[&str] = &["--dim", "64", "--heads", "4", "--layers", "12", "--seq", "64"];

/// The peer's name for full precision.
const F32: &str = "f32";

const fn mode(name: &'static str, precision: &'static str) -> Option<Mode> {
    Some(Mode { name, precision })
}

macro_rules! row {
    ($module:ident, $peer:expr, $size:expr) => {
        row!(stringify!($module), 1, $module, $peer, $size)
    };
    ($name:expr, $threads:literal, $module:ident, $peer:expr, $size:expr) => {
        Row {
            ours: $name,
            threads: $threads,
            peer: $peer,
            size: $size,
            plan: $module::Gpt::PLAN,
            shape: ($module::LAYERS, $module::WIDTH),
            train: zero_runtime::main_from::<$module::Gpt>,
        }
    };
}

/// All rows, in the order in which a round measures them.
pub const ROWS: &[Row] = &[
    row!(single, mode("single", F32), &[]),
    row!(zero3, mode("fsdp", F32), &[]),
    row!(single_bf16, mode("single", "bf16"), &[]),
    row!(zero3_bf16, mode("fsdp", "bf16"), &[]),
    row!(single_bf16_params, mode("single", "bf16-pure"), &[]),
    row!("single_2", 2, single, mode("single", F32), &[]),
    row!("single_bf16_2", 2, single_bf16, mode("single", "bf16"), &[]),
    row!(llama, mode("fsdp", F32), LLAMA),
    row!(llama_bf16, mode("fsdp", "bf16"), LLAMA),
    row!(llama_single, mode("single", F32), LLAMA),
    row!("llama_single_2", 2, llama_single, mode("single", F32), LLAMA),
    row!(llama_single_bf16, mode("single", "bf16"), LLAMA),
    row!("llama_single_bf16_2", 2, llama_single_bf16, mode("single", "bf16"), LLAMA),
    row!(zero2, mode("fsdp2", F32), &[]),
    row!(zero1, mode("zero1", F32), &[]),
    row!(ddp, mode("ddp", F32), &[]),
    row!(small_single, mode("single", F32), SMALL),
    row!(small_zero3, mode("fsdp", F32), SMALL),
    row!(small_ddp, mode("ddp", F32), SMALL),
    row!(long, None, &[]),
    row!(long_bf16, None, &[]),
];
