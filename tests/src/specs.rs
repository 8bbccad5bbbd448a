//! Each file of `specs/`, compiled with a tiny GPT in place of the model that it names: as deep as that one, so that
//! every layout fits, and with a tied head, so that ties are tested under every spec.

use zero_runtime::model::Model;
use zero_runtime::prelude::*;

use crate::tiny::{DIM, TinyBlock, VOCAB};

/// Longest sequence of any spec.
const CONTEXT: usize = 128;

/// Work on a model whose type the caller does not know.
pub trait Visitor {
    /// The result.
    type Output;
    /// Does the work.
    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> Self::Output;
}

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

        specs! { naive visit_naive crate::naive::Naive: $($name = $file at $path),* }
        specs! { cuda visit_cuda zero_runtime::device::Cuda: $($name = $file at $path),* }

        /// Names of all specs: their files without the ending.
        pub const NAMES: &[&str] = &[$($file),*];

        /// Visits the model of a spec, if there is one of that name.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
            match name {
                $($file => Some(visitor.visit::<$name>()),)*
                _ => None,
            }
        }
    };
    ($module:ident $visit:ident $device:path: $($name:ident = $file:tt at $path:tt),*) => {
        mod $module {
            use super::*;

            $(model! { #[zero(spec = $path, device = $device)] $name })*

            /// Visits the model of a spec on this device, if there is one of that name.
            pub fn $visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
                match name {
                    $($file => Some(visitor.visit::<$name>()),)*
                    _ => None,
                }
            }
        }
    };
}

pub use cuda::visit_cuda;
pub use naive::visit_naive;

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

/// The plan of a model.
pub struct PlanOf;

impl Visitor for PlanOf {
    type Output = &'static zero_plan::Plan<'static>;

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> Self::Output {
        M::PLAN
    }
}
