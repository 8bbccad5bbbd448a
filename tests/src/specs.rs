//! Each file of `specs/`, compiled with a tiny GPT in place of the named model: equally deep, so that every layout fits, and with a
//! tied head, so that ties are tested under every spec.

use zero_core::model::Program;
use zero_runtime::prelude::*;

use crate::tiny::{DIM, TinyBlock, VOCAB};

/// Longest sequence of any spec.
const CONTEXT: usize = 128;

/// A tiny GPT for a spec.
macro_rules! model {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        struct $name {
            embed: Embedding<VOCAB, CONTEXT, DIM>,
            blocks: [TinyBlock; 4],
            norm: LayerNorm<DIM>,
            #[tied(embed)]
            head: LmHead<DIM, VOCAB>,
        }
    };
}

macro_rules! specs {
    ($($name:ident = $file:tt at $path:tt),* $(,)?) => {
        $(model! { #[zero(spec = $path)] $name })*

        specs! { naive naive_program crate::naive::Naive: $($name = $file at $path),* }
        specs! { cuda cuda_program zero_runtime::device::Cuda: $($name = $file at $path),* }

        /// Names of all specs: their files without the ending.
        pub const NAMES: &[&str] = &[$($file),*];

        specs! { program zero_runtime::device::Cpu: $($name = $file),* }
    };
    ($module:ident $program:ident $device:path: $($name:ident = $file:tt at $path:tt),*) => {
        mod $module {
            use super::*;

            $(model! { #[zero(spec = $path, device = $device)] $name })*

            specs! { $program $device: $($name = $file),* }
        }
    };
    ($program:ident $device:path: $($name:ident = $file:tt),*) => {
        /// The program of a spec on this device.
        ///
        /// # Panics
        /// If there is no spec of that name.
        pub fn $program(name: &str) -> &'static Program<$device> {
            match name {
                $($file => $name::PROGRAM,)*
                _ => panic!("{name} is no spec"),
            }
        }
    };
}

pub use cuda::cuda_program;
pub use naive::naive_program;

specs! {
    Ddp = "ddp" at "../specs/ddp.ron",
    Zero1 = "zero1" at "../specs/zero1.ron",
    Zero2 = "zero2" at "../specs/zero2.ron",
    Zero3 = "zero3" at "../specs/zero3.ron",
    Muon = "muon" at "../specs/muon.ron",
    Bf16 = "bf16" at "../specs/bf16.ron",
    Mixed = "mixed" at "../specs/mixed.ron",
    Hsdp = "hsdp" at "../specs/hsdp.ron",
    Gpipe = "gpipe" at "../specs/gpipe.ron",
    OneFOneB = "1f1b" at "../specs/1f1b.ron",
    Interleaved = "interleaved" at "../specs/interleaved.ron",
    Hybrid = "hybrid" at "../specs/hybrid.ron",
    Gpt2 = "gpt2" at "../specs/gpt2.ron",
    Llama = "llama" at "../specs/llama.ron",
    Qwen3 = "qwen3" at "../specs/qwen3.ron",
    Olmo3 = "olmo3" at "../specs/olmo3.ron",
}

/// A model with two units of 20 MiB: its ranks send one another more at once than an MPI library may buffer. Tests of
/// all specs leave it out.
#[zero(spec = "../specs/ddp.ron")]
pub struct Wide {
    embed: Embedding<8192, CONTEXT, 640>,
    norm: LayerNorm<640>,
    head: LmHead<640, 8192>,
}
