//! Source: the files of kernels and the headers that they include. Never compiles them.

/// An enumeration of sources with their texts.
macro_rules! sources {
    ($($name:ident = $file:literal,)*) => {
        /// A file of kernels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum KernelSource {
            $(#[doc = $file] $name,)*
        }

        impl KernelSource {
            /// Its name and its text.
            pub const fn text(self) -> [&'static str; 2] {
                match self {
                    $(Self::$name => [$file, include_str!(concat!("kernels/", $file))],)*
                }
            }
        }
    };
}

/// Names and texts of files.
macro_rules! headers {
    ($($file:literal,)*) => {
        &[$([$file, include_str!(concat!("kernels/", $file))],)*]
    };
}

/// The headers that sources may include.
pub(super) const HEADERS: &[[&str; 2]] = headers! {
    "prelude.cuh",
    "math.cuh",
    "packs.cuh",
    "attention.cuh",
    "mma.cuh",
    "step.cuh",
};

sources! {
    Elementwise = "elementwise.cu",
    Sums = "sums.cu",
    Optimizer = "optimizer.cu",
    Nonlinear = "nonlinear.cu",
    Norm = "norm.cu",
    Rotary = "rotary.cu",
    Embedding = "embedding.cu",
    Loss = "loss.cu",
    Attention = "attention.cu",
    AttentionBf16 = "attention_bf16.cu",
}
